"""What enters and leaves modules is followed, and no hook stays behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from skipscope.module_hooks import Call, following


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)

    def forward(self, x: Tensor, fail: bool = False) -> Tensor:
        x = self.second(input=self.first(self.first(x)))
        if fail:
            raise RuntimeError("on purpose")
        return x


def modules(model: nn.Module) -> dict[str, nn.Module]:
    return {path: module for path, module in model.named_modules() if path}


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_calls_in_their_order_with_what_enters_and_leaves() -> None:
    model, x = Net(), torch.ones(2, 3)
    seen: list[tuple[str, str, Any]] = []

    def entered(call: Call) -> None:
        assert call.module is model.get_submodule(call.path)
        seen.append(("in", call.name, (*call.args, *call.kwargs.values())[0]))

    with following(modules(model), entered=entered, left=lambda call, output: seen.append(("out", call.name, output))):
        result = model(x)
    names = ["first", "first#2", "second"]
    assert [(way, name) for way, name, _ in seen] == [(way, name) for name in names for way in ("in", "out")]
    assert seen[0][2] is x
    assert seen[-1][2] is result


def test_what_left_returns_goes_on() -> None:
    model = Net()
    with following({"second": model.second}, left=lambda call, output: 2 * output):
        doubled = model(torch.ones(1, 3))
    assert torch.equal(doubled, 2 * model(torch.ones(1, 3)))


def test_what_entered_returns_goes_in() -> None:
    model, x = Net(), torch.ones(1, 3)
    with following({"first": model.first}, entered=lambda call: ((2 * call.args[0],), {})):
        changed = model(x)
    assert torch.equal(changed, model.second(model.first(2 * model.first(2 * x))))


def test_numbers_start_at_one_in_every_context() -> None:
    model = Net()
    for _ in range(2):
        names: list[str] = []
        with following({"second": model.second}, entered=lambda call, names=names: names.append(call.name)):  # type: ignore[misc]
            model(torch.ones(1, 3))
        assert names == ["second"]


def test_no_hook_stays() -> None:
    model = Net()
    with following(modules(model), left=lambda call, output: None):
        assert hooks(model) == 4
        model(torch.ones(1, 3))
    assert hooks(model) == 0


def test_no_hook_stays_after_an_error() -> None:
    model = Net()
    with pytest.raises(RuntimeError, match="on purpose"), following(modules(model), left=lambda call, output: None):
        model(torch.ones(1, 3), fail=True)
    assert hooks(model) == 0


def test_no_hook_stays_where_one_cannot_be_registered() -> None:
    model = Net()
    with pytest.raises(AttributeError), following({"first": model.first, "wrong": None}):  # type: ignore[dict-item]
        pass
    assert hooks(model) == 0


def test_left_is_called_after_errors_where_that_is_asked_for() -> None:
    model, running = Net(), []
    follow = {"": model, **modules(model)}
    with following(
        follow,
        entered=lambda call: running.append(call.path),
        left=lambda call, output: running.remove(call.path),
        after_errors=True,
    ):
        with pytest.raises(RuntimeError, match="on purpose"):
            model(torch.ones(1, 3), fail=True)
        assert running == []


def test_the_users_own_hooks_stay() -> None:
    model = Net()
    model.first.register_forward_hook(lambda *_: None)
    with following(modules(model), left=lambda call, output: None):
        model(torch.ones(1, 3))
    assert hooks(model) == 1
