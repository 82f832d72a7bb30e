"""A point or a Jacobian that is held while the weights change is refused: old states and new weights are no network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
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


CHANGES = [_step, _in_place, _buffer, _loaded, _assigned, _replaced, _data_replaced]
REFUSED = "the weights have changed since this point was computed"


@pytest.mark.parametrize("units", [None, ["first", "second"]])
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_held_is_refused_and_what_is_asked_again_is_right(change: Change, units: list[str] | None) -> None:
    torch.manual_seed(0)
    model, x, v = Net().eval(), torch.randn(4, D), torch.randn(4, D, 2)
    trunk = ss.trace(model, x, units=units)
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


@pytest.mark.parametrize("units", [None, ["first", "second"]])
def test_writes_that_torch_does_not_count_are_seen_when_a_jacobian_is_made(units: list[str] | None) -> None:
    model, x = Net().eval(), torch.randn(4, D)
    trunk = ss.trace(model, x, units=units)
    point = trunk.at(x)
    _data_written(model)
    with pytest.raises(ss.InputError, match=REFUSED):
        trunk[0].jacobian(point)
    with pytest.raises(ss.InputError, match=REFUSED):
        point.gradients(lambda output: output.sum())


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
