"""All measurements on all the small networks: none fails, no bound of the law is violated."""

from __future__ import annotations

import pytest

import skipscope as ss
from skipscope.measure import coupling, depth_use, law, lens, normality, spectra, verification
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


CHAINS = ("residual, relu", "post-norm encoder", "cross-attention", "u-net, added")
REFUSED = ("needs states of one shape", "do not form a chain of states", "no unit of")


@pytest.mark.parametrize("name", thinned((name for name, case in CASES.items() if case.units), fast=CHAINS))
def test_measures_of_language_models_work_or_say_why_not(name: str) -> None:
    _, trunk = traced(name)
    x = inputs(CASES[name], 2)
    used = depth_use(trunk, x)
    assert used["state_norm"].notnull().all()
    assert used.attrs["head"]
    for measure, options in ((coupling, {"k": 2}), (lens, {}), (normality, {"samples": 1})):
        error = ""
        try:
            found = measure(trunk, x, **options)
            assert not found.attrs.get("sweep_error", 0) > 1e-10  # NaN where nothing could be compared
        except ss.InputError as refusal:
            error = str(refusal)
        assert not error or any(words in error for words in REFUSED)
