"""A batch, a state or a unit that was mistaken for another: what was expected, and what came."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import D, Residual, mlp

ROWS = 11


class Words(nn.Module):
    """Token ids in, in any of the ways that models reshape them; the output layer is tied to the embedding."""

    def __init__(self, way: Callable[[Tensor], Tensor] = lambda ids: ids) -> None:
        super().__init__()
        self.way = way
        self.head = nn.Linear(D, ROWS, bias=False)
        self.embed = nn.Embedding(ROWS, D)
        self.embed.weight = self.head.weight
        self.block = Residual(mlp())

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.block(self.embed(self.way(ids)))
        return self.head(h if mask is None else h * mask[..., None])


def words(**options: Any) -> tuple[Words, Tensor]:
    torch.manual_seed(0)
    return Words(**options).eval(), torch.randint(0, ROWS, (3, 4))


@pytest.mark.parametrize(
    "way",
    [lambda ids: ids, lambda ids: ids.reshape(-1, 4), lambda ids: ids.long().contiguous().unsqueeze(0).squeeze(0)],
    ids=["as they are", "reshaped", "converted"],
)
@pytest.mark.parametrize("off", [1, 10_000, -1])
def test_ids_that_the_embedding_does_not_have(way: Callable[[Tensor], Tensor], off: int) -> None:
    model, ids = words(way=way)
    trunk = ss.trace(model, ids)
    wrong = torch.full_like(ids, 0 if off < 0 else ROWS - 1)
    trunk.at(wrong)
    wrong[1, 2] += off
    for use in (trunk.at, trunk.replay, trunk[0].jacobian, lambda x: ss.profile(trunk, x)):
        with pytest.raises(
            ss.InputError, match=f"'ids': expected ids from 0 to {ROWS - 1}, .* the embedding embed, got ids from"
        ):
            use(wrong)


def test_ids_that_are_not_looked_up_as_they_are() -> None:
    """Padding of -1 that the model itself replaces is no mistake, nor are numbers that no table has."""
    model, ids = words(way=lambda ids: ids.clamp_min(0))
    trunk, padded = ss.trace(model, ids), ids.clone()
    padded[:, -1] = -1
    with torch.no_grad():
        torch.testing.assert_close(trunk.replay(padded), model(padded))


def test_ids_that_cannot_be_looked_at() -> None:
    model, ids = words()
    trunk = ss.trace(model, ids)
    one_by_one = torch.func.vmap(lambda one: trunk.replay(one[None])[0])(ids)
    torch.testing.assert_close(one_by_one, model(ids))


def test_what_the_model_itself_refuses_at_named_units() -> None:
    model, ids = words()
    trunk = ss.trace(model, ids, units=["block"])
    with pytest.raises(ss.InputError, match=r"Words does not run on inputs of shapes \[\(3, 4\)\]: "):
        trunk.at(ids + 10_000)
    torch.testing.assert_close(trunk.replay(ids), model(ids))


@pytest.mark.parametrize(
    ("batch", "expected", "came"),
    [
        (lambda ids: {"ids": ids}, "1 positional input", "key ids"),
        (lambda ids: (ids, torch.ones(3, 4)), "1 positional input", "2 positional inputs"),
        (lambda ids: ids, "keys ids, mask", "1 positional input"),
        (lambda ids: {"ids": ids}, "keys ids, mask", "key ids"),
    ],
)
def test_a_batch_of_other_inputs(batch: Callable[[Tensor], Any], expected: str, came: str) -> None:
    model, ids = words()
    trunk = ss.trace(model, {"ids": ids, "mask": torch.ones(3, 4)} if "keys" in expected else ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ss.InputError, match=f"expected {expected}, as the trunk was traced with, got {came};"):
            trunk.at(batch(ids))


class OfPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Residual(mlp())

    def forward(self, pair: Any) -> Tensor:
        return self.block(pair[0] if len(pair) == 1 else pair[0] + pair[1])


def test_a_batch_that_differs_further_inside() -> None:
    x = torch.randn(3, D)
    trunk = ss.trace(OfPair(), ([x, x],))
    with pytest.raises(ss.InputError, match="expected 1 positional input: ") as error:
        trunk.at(([x],))
    assert "\n" not in str(error.value)
    assert "TreeSpec" not in str(error.value)


@pytest.mark.parametrize("units", [None, ["0", "1"]])
def test_a_point_in_place_of_a_state(units: list[str] | None) -> None:
    """At a point everything that can be called takes its own state there, with the context of that point."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp()), Residual(mlp()), nn.Linear(D, 3)).eval(), torch.randn(4, D)
    trunk = ss.trace(model, x, units=units)
    point = trunk.at(x)
    second = trunk[1]
    torch.testing.assert_close(second(point), point.exit(second))
    torch.testing.assert_close(second.branch(point) + second.skip(point), point.sum(second))
    torch.testing.assert_close(trunk.stages[0](point), point.exit(second))
    torch.testing.assert_close(trunk.span(0, 1)(point), point.exit(second))
    for function in (second, second.branch, trunk.span(0, 1), trunk.stages[0]):
        with pytest.raises(ss.InputError, match=r"expected a state, such as .* or a point, got list"):
            function([1.0])


@pytest.mark.parametrize("units", [None, ["0", "1"]])
@pytest.mark.parametrize("twin", ["another model", "a copy"])
def test_a_point_of_another_trunk(twin: str, units: list[str] | None) -> None:
    """Also that of a copy, which has the same graph and other weights."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp()), Residual(mlp())).eval(), torch.randn(4, D)
    trunk = ss.trace(model, x, units=units)
    other = copy.deepcopy(trunk) if twin == "a copy" else ss.trace(copy.deepcopy(model), x, units=units)
    point = trunk.at(x)
    other.at(x)
    for use in (other[1], other[1].branch, other.span(0, 1), other.stages[0], other[1].jacobian):
        with pytest.raises(ss.TraceError, match="this point is"):
            use(point)
    with pytest.raises(ss.TraceError, match="this point is"):
        ss.profile(other, point)


@pytest.mark.parametrize("units", [None, ["0", "1"]])
def test_units_in_place_of_their_names(units: list[str] | None) -> None:
    model, x = nn.Sequential(Residual(mlp()), Residual(mlp())).eval(), torch.randn(4, D)
    trunk, other = (ss.trace(model, x, units=units) for _ in range(2))
    point = trunk.at(x)
    torch.testing.assert_close(trunk.span(trunk[0], trunk[1])(point), point.exit(trunk[1]))
    assert trunk[trunk[1]] is trunk[1]
    assert ss.profile(trunk, point, units=[trunk[1]])["unit"].values.tolist() == ["1"]
    with pytest.raises(ss.TraceError, match=r"the unit 1 is not of this trunk; use trunk\['1'\]"):
        trunk.span(trunk[0], other[1])
