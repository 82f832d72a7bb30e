"""What a look is expected to take, before it has run."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.monitor import expected as module
from skipscope.monitor.expected import expected
from skipscope.monitor.measures import MEASURES, Look
from skipscope.monitor.objective import Objective
from skipscope.monitor.sharpness import Rate
from tests.monitor.loops import X, Y, small_model

NAMES = [name for name in MEASURES if name != "streams"]


def look_at(model: nn.Module, objective: Objective | None = None) -> Look:
    trunk = ss.trace(model, X[:8])
    return Look(trunk, trunk.inputs(X[:8]), objective or Objective.of(None, Y[:8]), Rate.of(None, 0.1), 4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_guess_is_near_what_a_look_takes(name: str) -> None:
    look = look_at(small_model())
    guess = expected([name], look)[name]
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        MEASURES[name].measure(look)
        times.append(time.perf_counter() - begun)
    assert 1 / 10 < guess / min(times) < 10  # within 3 alone on a machine; others may work on it


def test_units_of_one_kind_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    largest_value = module.largest_value

    def noted(unit: ss.Unit, *rest: object, **more: object) -> object:
        tried.append(unit.name)
        return largest_value(unit, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "largest_value", noted)
    found = expected(["singular", "alignment"], look_at(small_model(blocks=5)))
    assert tried == ["1", "1"]
    assert 0 < found["singular"] < found["alignment"]


def test_large_weights_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their time is that of a smaller one, times the work."""
    monkeypatch.setattr(module, "WORK", 2**9)
    tried: list[str] = []
    leading_value = module.leading_value

    def noted(weight: Tensor, seed: int) -> object:
        tried.append(str(tuple(weight.shape)))
        return leading_value(weight, seed)

    monkeypatch.setattr(module, "leading_value", noted)
    torch.manual_seed(0)
    model = small_model(blocks=1)
    model[1].inner, model[1].outer = nn.Linear(8, 512), nn.Linear(512, 8)
    expected(["stable_rank"], look_at(model))
    assert set(tried) == {"(3, 8)", "(8, 4)"}


def test_what_cannot_be_tried_does_not_end_the_training() -> None:
    """The first look says what is wrong."""

    class OnlyOnce(torch.autograd.Function):
        """Without a second derivative."""

        @staticmethod
        def forward(context: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
            return x.sum()

        @staticmethod
        def backward(context: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:  # type: ignore[override]
            raise RuntimeError("no derivative")

    found = expected(["sharpness"], look_at(small_model(blocks=1), Objective.of(OnlyOnce.apply, None)))
    assert found["sharpness"] > 0
