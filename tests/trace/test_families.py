"""The rule on published architectures; each is exported once, and everything is asked of that one trunk."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

import skipscope as ss
from skipscope.numerics import measuring
from skipscope.trace.tracing import relative_error
from tests.trace.families import FAMILIES, Family, main_output

TOLERANCE = 1e-5  # relative, float32

CASES = [
    pytest.param(name, id=name, marks=[pytest.mark.slow] if family.slow else []) for name, family in FAMILIES.items()
]


@pytest.mark.parametrize("name", CASES)
def test_family(name: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.make().eval()
    trunk = ss.trace(model, family.x(2))
    check_units(trunk, family)
    x = family.x(3)
    check_replay(trunk, model, x)
    check_parts_add_up(trunk, x)


def check_units(trunk: ss.Trunk, family: Family) -> None:
    assert Counter(unit.kind for unit in trunk.units) == family.skips
    assert sum(bool(unit.context) for unit in trunk.units) == family.contexts
    assert Counter(left.kind for left in trunk.left_out if left.kind != "pointwise") == family.left_out
    assert [unit for unit in trunk.units if unit.parent] == []
    if family.tails is not None:
        assert Counter(" ".join(unit.tail.operations) for unit in trunk.units) == family.tails
    expected = family.branches or {1: family.units}
    assert Counter(unit.branches for unit in trunk.units) == Counter(expected)
    if family.first is not None:
        assert trunk.units[0].name == family.first
    if not family.units:
        assert "0 residual units" in str(trunk)
        assert ("concatenation" in str(trunk)) == ("concatenation" in family.left_out)


def check_replay(trunk: ss.Trunk, model: nn.Module, x: Any) -> None:
    """At another batch size than the traced one."""
    with torch.no_grad(), measuring():  # a GPU's TF32 is off in both
        expected = main_output(model(**x) if isinstance(x, dict) else model(x))
    assert relative_error(main_output(trunk.replay(x)), expected) < TOLERANCE


def check_parts_add_up(trunk: ss.Trunk, x: Any) -> None:
    point = trunk.at(x)
    for unit in trunk.units:
        entry = point.entry(unit)
        assert relative_error(unit.branch(entry) + unit.skip(entry), point.sum(unit)) < TOLERANCE, unit.name
        if unit.kind == "identity":
            assert torch.equal(unit.skip(entry), entry), unit.name
        assert relative_error(unit(entry), point.exit(unit)) < TOLERANCE, unit.name
