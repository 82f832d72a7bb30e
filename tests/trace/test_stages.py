"""Stage numbers: from 1 in names, tables and datasets, as units are named; `trunk.stages[i]` is a Python index."""

from __future__ import annotations

import re

import pytest
import torch

import skipscope as ss
from skipscope.models.names import build


@pytest.mark.parametrize("named", [False, True])
def test_the_number_of_a_stage_is_that_in_the_names_of_its_units(named: bool) -> None:
    model, x = build("resnet14-digits-n4").eval(), torch.randn(2, 1, 8, 8)
    units = [f"stage{stage}.{block}" for stage in (1, 2, 3) for block in (0, 1)]
    trunk = ss.trace(model, x, units=units) if named else ss.trace(model, x)
    assert [unit.name for unit in trunk.units] == units
    for i, stage in enumerate(trunk.stages):
        assert (stage.index, stage.number, stage.name) == (i, i + 1, f"stage {i + 1}")
        assert {unit.stage for unit in stage.units} == {stage.number}
        assert all(unit.name.startswith(f"stage{stage.number}.") for unit in stage.units)
        assert f"Stage {stage.number}:" in repr(stage)
    rows = [re.split(r"\s{2,}", line.strip()) for line in str(trunk).splitlines()[1:] if "  " in line]
    column = rows[0].index("stage")
    assert [row[column] for row in rows if row[1] in units] == ["1", "1", "2", "2", "3", "3"]
    document = trunk.to_dict()
    assert [unit["stage"] for unit in document["units"]] == [1, 1, 2, 2, 3, 3]
    assert [(stage["number"], stage["units"]) for stage in document["stages"]] == [
        (number, units[2 * number - 2 : 2 * number]) for number in (1, 2, 3)
    ]
    spectra = ss.spectra(trunk, x)
    assert dict(zip(spectra["unit"].values.tolist(), spectra["stage"].values.tolist(), strict=True)) == {
        **{name: int(name[5]) for name in units},
        **{f"stage {number}": number for number in (1, 2, 3)},
    }
    (whole,) = ss.spectra(trunk, x, units=[], stages=[1])["unit"].values.tolist()
    assert whole == trunk.stages[1].name == "stage 2"
    assert ss.trajectories(trunk, x)["stage"].values.tolist() == [1, 2, 3]
