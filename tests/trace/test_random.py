"""Random residual architectures with known answers: the right units, the right values, the model left as it was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import skipscope as ss
from skipscope.trace.tracing import relative_error
from tests.trace.generator import STARTS, Known, Net, Plan, build, known_units, plans

TOLERANCE = 1e-10

# No deadline: an export costs up to a second. For the same reason only the slow test makes a failing plan smaller.
COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}


# One test for each kind of state: drawn examples resemble one another, and a few of each kind cover more.
@pytest.mark.parametrize("kind", STARTS)
@settings(max_examples=4, derandomize=True, phases=[Phase.generate], **COMMON)
@given(st.data())
def test_random_architectures(kind: str, data: st.DataObject) -> None:
    check(data.draw(plans(kind)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTS)
@settings(max_examples=100, phases=[Phase.generate, Phase.shrink], **COMMON)
@given(st.data())
def test_many_random_architectures(kind: str, data: st.DataObject) -> None:
    check(data.draw(plans(kind)))


def check(plan: Plan) -> None:
    torch.manual_seed(plan.seed)
    net = build(plan)
    known, x = known_units(net), net.inputs(3)
    before = snapshot(net)
    trunk = ss.trace(net, x)
    assert_unchanged(before, snapshot(net))
    assert_found(trunk, known)
    net.eval()
    with torch.no_grad():
        assert_replays(trunk, net)
        assert_units_compute(trunk, net, known)


def assert_found(trunk: ss.Trunk, known: list[Known]) -> None:
    found = [
        {
            "kind": unit.kind,
            "tail": unit.tail.operations,
            "context": bool(unit.context),
            "parent": unit.parent.index if unit.parent else None,
            "branches": unit.branches,
            "shapes": (unit.entry_shape, unit.exit_shape),
            "parameters": unit.parameters,
        }
        for unit in trunk.units
    ]
    sizes = {id(p): p.numel() for p in trunk.model.parameters()}
    assert found == [
        {
            "kind": answer.kind,
            "tail": answer.tail,
            "context": answer.context,
            "parent": answer.parent,
            "branches": answer.branches,
            "shapes": (answer.entry_shape, answer.exit_shape),
            "parameters": sum(sizes[p] for p in answer.parameters),
        }
        for answer in known
    ]
    names = [unit.name for unit in trunk.units]
    bare = [name.split("#")[0] for name in names]
    assert bare == [answer.name or name for answer, name in zip(known, bare, strict=True)]
    seen: Counter[str] = Counter()
    line = trunk.structure.line  # those that the segments follow are numbered first
    for i in sorted(range(len(names)), key=lambda i: (i not in line, i)):
        seen[bare[i]] += 1
        assert names[i] == (bare[i] if seen[bare[i]] == 1 else f"{bare[i]}#{seen[bare[i]]}")
    for unit, answer in zip(trunk.units, known, strict=True):
        assert {id(trunk.model.get_parameter(name)) for name in unit.parameter_names} == answer.parameters


def assert_replays(trunk: ss.Trunk, net: Net) -> None:
    """At batch sizes other than the traced one; one sample is the size that exports like to specialise."""
    for batch in (1, 5):
        x = net.inputs(batch)
        expected = call(net, x)
        assert relative_error(trunk.replay(x), expected) < TOLERANCE
        assert relative_error(trunk.at(x).output, expected) < TOLERANCE


def assert_units_compute(trunk: ss.Trunk, net: Net, known: list[Known]) -> None:
    """Each unit against its own module's code, along the model's states and at a state of no model."""
    x = net.inputs(4)
    point = trunk.at(x)
    context = net.context(*arguments(x))
    for unit, answer in zip(trunk.units, known, strict=True):
        entry, module = point.entry(unit), answer.module
        assert_close(unit.branch(entry) + unit.skip(entry), point.sum(unit))
        assert_close(unit.tail(point.sum(unit)), point.exit(unit))
        assert_close(unit(entry), point.exit(unit))
        assert_close(point.exit(unit), module.whole(entry, context))
        fresh = torch.randn_like(entry)
        total = unit.branch(fresh) + unit.skip(fresh)
        assert_close(total, module.run(fresh, context))
        assert_close(unit.skip(fresh), module.skip_alone(fresh))
        assert_close(unit.tail(total), module.end(total))
        assert_close(unit(fresh), module.whole(fresh, context))


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert relative_error(found, expected) < TOLERANCE


def arguments(x: Any) -> tuple[Tensor, Tensor | None]:
    if isinstance(x, dict):
        return x["x"], x.get("context")
    return x if isinstance(x, tuple) else (x, None)


def call(net: Net, x: Any) -> Any:
    return net(**x) if isinstance(x, dict) else net(*arguments(x))


# -- the model as its user left it


def snapshot(net: Net) -> dict[str, Any]:
    parameters = dict(net.named_parameters())
    return {
        "modes": {name: module.training for name, module in net.named_modules()},
        "attributes": {name: sorted(vars(module)) for name, module in net.named_modules()},
        "hooks": {name: hooks(module) for name, module in net.named_modules()},
        "parameters": {name: (id(p), p._version, p.requires_grad) for name, p in parameters.items()},
        "gradients": [name for name, p in parameters.items() if p.grad is not None],
        "state": {name: value.clone() for name, value in net.state_dict().items()},
        "random": torch.get_rng_state(),
        "globals": (torch.is_grad_enabled(), torch.get_default_dtype()),
    }


def hooks(module: nn.Module) -> dict[str, list[int]]:
    return {name: list(value) for name, value in vars(module).items() if name.endswith("hooks") and value}


def assert_unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    tensors = {"state", "random"}
    assert {k: v for k, v in after.items() if k not in tensors} == {k: v for k, v in before.items() if k not in tensors}
    assert torch.equal(after["random"], before["random"])
    assert after["state"].keys() == before["state"].keys()
    for name, value in after["state"].items():
        assert torch.equal(value, before["state"][name]), name
