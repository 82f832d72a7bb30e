"""A point or a Jacobian that is held while the weights change is refused: old states and new weights are no network."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.trace.freshness import WeightsSeen, asked_once
from tests.slow import thinned
from tests.trace.nets import D, Residual, mlp

Change = Callable[[nn.Module], None]


class Scaled(nn.Module):
    """A buffer that the branch reads, and a context."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = mlp()
        self.register_buffer("factor", torch.tensor(0.5))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return x + self.factor * self.branch(x) * context


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(D, D)
        self.first, self.second = Residual(mlp()), Scaled()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.second(self.first(x), x)


def _step(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(4, D)).square().sum().backward()
    optimizer.step()


def _fused_step(model: nn.Module) -> None:
    """Torch does not count what it writes."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)
    model(torch.randn(4, D)).square().sum().backward()
    optimizer.step()


def _in_place(model: nn.Module) -> None:
    with torch.no_grad():
        model.stem.weight.mul_(2)


def _buffer(model: nn.Module) -> None:
    model.second.factor.fill_(2.0)


def _loaded(model: nn.Module) -> None:
    model.load_state_dict(Net().state_dict())


def _assigned(model: nn.Module) -> None:
    model.load_state_dict(Net().state_dict(), assign=True)


def _replaced(model: nn.Module) -> None:
    model.first.branch[0].weight = nn.Parameter(torch.randn_like(model.first.branch[0].weight))


def _data_replaced(model: nn.Module) -> None:
    model.stem.weight.data = torch.randn(D, D)


def _data_written(model: nn.Module) -> None:
    model.stem.weight.data.mul_(2)


CHANGES = [_step, _in_place, _buffer, _loaded, _assigned, _replaced, _data_replaced, _data_written, _fused_step]
REFUSED = "the weights have changed since this point was computed"


@pytest.mark.parametrize(
    ("change", "named"),
    thinned(
        itertools.product(CHANGES, (False, True)),
        fast=[*((change, False) for change in CHANGES), (_step, True), (_buffer, True), (_replaced, True)],
    ),
)
def test_what_was_held_is_refused_and_what_is_asked_again_is_right(change: Change, named: bool) -> None:
    torch.manual_seed(0)
    model, x, v = Net().eval(), torch.randn(4, D), torch.randn(4, D, 2)
    trunk = ss.trace(model, x, units=["first", "second"] if named else None)
    point = trunk.at(x)
    unit = trunk[1]
    J, late = unit.jacobian(point), unit.jacobian(point, of="branch")
    J.matmat(v), J.rmatmat(v)  # the derivative is recorded
    change(model)
    for use in (
        lambda: J.matmat(v),
        lambda: J.rmatmat(v),
        lambda: late.rmatmat(v),
        lambda: J.double().matmat(v.double()),
        lambda: unit.jacobian(point),
        lambda: point.entry(unit),
        lambda: point.exit(unit),
        lambda: point.sum(unit),
        lambda: point.states,
        lambda: point.output,
        lambda: point.gradients(lambda output: output.sum()),
        lambda: ss.profile(trunk, point),
    ):
        with pytest.raises(ss.InputError, match=REFUSED):
            use()
    with torch.no_grad():
        torch.testing.assert_close(trunk.at(x).output, model(x))
    torch.testing.assert_close(unit.jacobian(x).dense(), unit.jacobian(trunk.at(x)).dense())


def test_a_unit_with_a_context_is_not_called_with_an_old_one() -> None:
    model, x = Net().eval(), torch.randn(4, D)
    trunk = ss.trace(model, x)
    state = trunk.at(x).entry(trunk[1])
    _step(model)
    trunk[0](state)  # needs nothing of the point
    with pytest.raises(ss.InputError, match=REFUSED):
        trunk[1](state)


def test_measuring_does_not_count_as_a_change() -> None:
    model, x = Net().train(), torch.randn(4, D)
    for units in (None, ["first", "second"]):
        trunk = ss.trace(model, x, units=units)
        point = trunk.at(x)
        J = trunk[0].jacobian(point)
        ss.singular_values(J), trunk.replay(x) if units is None else None
        model(x)
        J.rmatmat(torch.randn(4, D, 1))
        point.gradients(lambda output: output.sum())
        assert len(point.states) == 3


def test_weights_of_all_types_are_read_with_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Module()
    values = {
        "single": torch.randn(3, 4),
        "narrow": torch.randn(5).bfloat16(),
        "count": torch.tensor(2**60 + 1),
        "mask": torch.tensor([True, False, True]),
        "wave": torch.randn(3, dtype=torch.complex64).conj(),
        "nothing": torch.empty(0, 3),
        "nan": torch.tensor([float("nan")]),
        "meta": torch.empty(3, device="meta"),
    }
    for name, value in values.items():
        model.register_buffer(name, value)
    reads: list[int] = []
    tolist = Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda tensor: reads.append(tensor.numel()) or tolist(tensor))
    monkeypatch.setattr(Tensor, "item", lambda tensor: pytest.fail("one weight was read alone"))
    seen = WeightsSeen(model, values)
    assert seen.changed() is None
    assert len(reads) == 2
    assert copy.deepcopy(seen).changed() is None
    for name, written in {"single": 3.0, "narrow": 3.0, "count": 2**60, "mask": True, "wave": 3j, "nan": 1.0}.items():
        before = model.get_buffer(name).clone()
        model.get_buffer(name).data.fill_(written)
        assert seen.changed() == name
        assert copy.deepcopy(seen).changed() is not None
        model.get_buffer(name).data.copy_(before)
        assert seen.changed() is None


def test_a_part_of_a_point_shares_what_it_knows_of_the_weights() -> None:
    model, x = Net().eval(), torch.randn(4, D)
    trunk = ss.trace(model, x)
    point = trunk.at(x)
    part = point.take([2, 0])
    assert part is not None
    assert part.seen is point.seen
    torch.testing.assert_close(part.entry(trunk[1]), point.entry(trunk[1])[[2, 0]])
    _step(model)
    with pytest.raises(ss.InputError, match=REFUSED):
        part.entry(trunk[1])


def test_converted_weights_are_given_up_with_the_point() -> None:
    model, x = Net().eval(), torch.randn(4, D)
    trunk = ss.trace(model, x, units=["first", "second"])
    trunk.span(0, 1).jacobian(x).double().matmat(torch.randn(4, D, 1).double())
    assert trunk.precision._converted is not None
    trunk.at(x)
    assert trunk.precision._converted is None


def test_a_measurement_asks_for_the_weights_once_and_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Net().eval(), torch.randn(3, D)
    trunk = ss.trace(model, x)
    point = trunk.at(x)
    asked = []
    monkeypatch.setattr(WeightsSeen, "changed", lambda self: asked.append(self))
    with asked_once():
        J = trunk.units[0].jacobian(point)
        for _ in range(5):
            J.matmat(torch.randn(3, D, 2))
            J.rmatmat(torch.randn(3, D, 2))
        assert len(asked) == 1
    assert len(asked) == 2
    J.rmatmat(torch.randn(3, D, 2))
    assert len(asked) > 2


def test_a_measurement_during_which_the_weights_change_is_refused() -> None:
    model, x = Net().eval(), torch.randn(3, D)
    trunk = ss.trace(model, x)
    point = trunk.at(x)

    def change(done: int, total: int) -> None:
        if done == 1:
            _in_place(model)

    with pytest.raises(ss.SkipscopeError, match="the weights have changed"):
        ss.alignment(trunk, point, k=2, progress=change)


def test_what_was_recorded_in_a_measurement_is_refused_after_it() -> None:
    model, x = Net().eval(), torch.randn(3, D)
    trunk = ss.trace(model, x)
    with asked_once():
        J = trunk.units[0].jacobian(trunk.at(x))
        J.rmatmat(torch.randn(3, D, 2))
    _in_place(model)
    for product in (J.matmat, J.rmatmat):
        with pytest.raises(ss.SkipscopeError, match="the weights have changed"):
            product(torch.randn(3, D, 2))
