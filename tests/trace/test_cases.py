"""The rule on networks with known answers, and what every trunk must satisfy."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import skipscope as ss
from skipscope.trace.tracing import relative_error
from tests.trace.beyond_sums import BEYOND
from tests.trace.nets import CASES as PLAIN
from tests.trace.nets import Case
from tests.trace.parts_and_pairs import PARTS

CASES = PLAIN | BEYOND | PARTS


@cache
def traced(name: str) -> tuple[nn.Module, ss.Trunk]:
    """In float64, so that equalities are equalities."""
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make().double().eval()
    return model, ss.trace(model, inputs(case, 3))


def inputs(case: Case, batch: int) -> Any:
    return pytree.tree_map_only(Tensor, Tensor.double, case.x(batch))


@pytest.fixture(params=list(CASES), name="name")
def _name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_finds_the_units(name: str) -> None:
    case, (_, trunk) = CASES[name], traced(name)
    assert [(unit.name, unit.kind) for unit in trunk.units] == case.units
    assert sorted(left.kind for left in trunk.left_out if left.kind != "pointwise") == sorted(case.left_out)
    if case.tails is not None:
        assert [unit.tail.operations for unit in trunk.units] == case.tails
    if case.contexts is not None:
        assert [bool(unit.context) for unit in trunk.units] == case.contexts
    if case.parents is not None:
        assert [unit.parent and unit.parent.index for unit in trunk.units] == case.parents
    if case.branches is not None:
        assert [unit.branches for unit in trunk.units] == case.branches


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_segments_replay_the_model_at_any_batch_size(name: str, batch: int) -> None:
    case, (model, trunk) = CASES[name], traced(name)
    x = inputs(case, batch)
    args, kwargs = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
    with torch.no_grad():
        expected = model(*args, **kwargs)
    assert relative_error(trunk.replay(x), expected) < 1e-12
    assert relative_error(trunk.at(x).output, expected) < 1e-12


def test_units_and_their_parts_add_up(name: str) -> None:
    case, (_, trunk) = CASES[name], traced(name)
    point = trunk.at(inputs(case, 4))
    for unit in trunk.units:
        entry = point.entry(unit)
        torch.testing.assert_close(unit(entry), point.exit(unit), rtol=0, atol=1e-12)
        torch.testing.assert_close(unit.branch(entry) + unit.skip(entry), point.sum(unit), rtol=0, atol=1e-12)
        torch.testing.assert_close(unit.tail(point.sum(unit)), point.exit(unit), rtol=0, atol=1e-12)
        if unit.kind == "identity":
            assert torch.equal(unit.skip(entry), entry)


def test_spans_compose_their_units(name: str) -> None:
    case, (_, trunk) = CASES[name], traced(name)
    point = trunk.at(inputs(case, 3))
    for stage in trunk.stages:
        first, last = stage.units[0], stage.units[-1]
        torch.testing.assert_close(stage(point.entry(first)), point.exit(last), rtol=0, atol=1e-12)


def test_segments_partition_the_graph(name: str) -> None:
    _, trunk = traced(name)
    nodes = [node for segment in trunk.segments for node in segment.nodes]
    assert len(nodes) == len(set(nodes)) == len(trunk.program.nodes)


def test_segments_that_continue_the_state_can_be_called() -> None:
    _, trunk = traced("pre-activation")
    assert [s.kind for s in trunk.segments] == ["stem", "unit", "transition", "unit", "unit", "head"]
    x = inputs(CASES["pre-activation"], 2)
    state = x
    for segment in trunk.segments:
        state = segment(state)
    torch.testing.assert_close(state, trunk.replay(x), rtol=0, atol=1e-12)


def test_prints_as_text_and_html() -> None:
    _, trunk = traced("cross-attention")
    lines = str(trunk).splitlines()
    assert lines[0].startswith("Decoder: 3 residual units in 1 stage")
    assert [line.split()[1] for line in lines[3:]] == ["own", "cross", "mlp"]
    assert "memory" in lines[4]
    assert trunk._repr_html_().count("<tr>") == 4
    assert "0 residual units" in str(traced("no skip at all")[1])
    assert "gated" in str(traced("highway")[1])


def test_units_are_found_by_name_and_index() -> None:
    _, trunk = traced("flat loop")
    assert trunk["layers.1"] is trunk[1] is trunk.units[1]
    assert trunk[-1] is trunk.units[2]
    with pytest.raises(ss.TraceError, match=r"no unit 'layer\.1'.*layers\.1"):
        trunk["layer.1"]
    with pytest.raises(ss.TraceError, match="3 units"):
        trunk[3]
    with pytest.raises(ss.TraceError, match="earlier unit first"):
        trunk.span(2, 0)


def test_wrong_states_and_inputs_are_refused_with_what_was_expected() -> None:
    _, trunk = traced("flat loop")
    with pytest.raises(ss.InputError, match=r"layers\.1: expected a state of shape \(batch, 8\), got \(2, 9\)"):
        trunk["layers.1"](torch.randn(2, 9))
    with pytest.raises(ss.InputError, match=r"traced with shape \(batch, 8\), got \(2, 9\)"):
        trunk.at(torch.randn(2, 9, dtype=torch.float64))
    with pytest.raises(ss.InputError, match="expected a tensor, a tuple or a dict"):
        trunk.at("text")


def test_a_context_of_another_batch_is_refused() -> None:
    case, (_, trunk) = CASES["cross-attention"], traced("cross-attention")
    point = trunk.at(inputs(case, 3))
    state = point.entry(trunk["cross"])
    trunk.at(inputs(case, 2))
    with pytest.raises(ss.InputError, match=r"a batch of 2, but the state has 3"):
        trunk["cross"](state)
