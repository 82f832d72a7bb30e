"""All measurements on all the small networks: none fails, no bound of the law is violated."""

from __future__ import annotations

import pytest

from skipscope.measure import law, spectra, verification
from tests.linear.test_jacobian import FEW
from tests.slow import thinned
from tests.trace.nets import CASES
from tests.trace.test_cases import inputs, traced


@pytest.mark.parametrize("name", thinned((name for name, case in CASES.items() if case.units), fast=FEW))
def test_works_on_every_trunk(name: str) -> None:
    _, trunk = traced(name)
    point = trunk.at(inputs(CASES[name], 3))
    names = [unit.name for unit in trunk.units]
    found = spectra(trunk, point)
    assert found["unit"].values.tolist() == [*names, *(stage.name for stage in trunk.stages)]
    shares = sum(found[f"share_{share}"] for share in ("above", "near_one", "below", "zero"))
    assert shares.values == pytest.approx(1)
    counted = law(trunk, point)
    assert not counted["violated"].any()
    for unit in names:
        here = counted.sel(unit=unit)
        assert (here["reason"].item() == "") == bool(here["ones"].notnull().all())
    assert verification(trunk, point)["passed"].all()
