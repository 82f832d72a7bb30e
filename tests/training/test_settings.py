"""Settings are checked when they are made, and the learning rate follows torch's own schedulers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from skipscope.errors import InputError
from skipscope.training import Settings
from skipscope.training.settings import rate_at

STEPS = 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": 2.5},
        {"batch": 1},
        {"rate": 0.0},
        {"rate": math.nan},
        {"rate": math.inf},
        {"momentum": 1.0},
        {"momentum": 0.0, "nesterov": True},
        {"weight_decay": -1.0},
        {"schedule": "linear"},
        {"schedule": "step"},
        {"milestones": (1,)},
        {"schedule": "step", "milestones": (2, 1)},
        {"schedule": "step", "milestones": (0.5,)},
        {"schedule": "step", "milestones": (4,)},
        {"factor": 0.0},
        {"warmup": 4},
        {"warmup": -1},
        {"precision": "float8"},
        {"label_smoothing": 1.0},
        {"clip": 0.0},
        {"seed": -1},
        {"seed": True},
        {"augmentation": "smoke"},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Settings(**{"epochs": 4, **wrong})


def test_lists_from_a_document_become_tuples() -> None:
    read = Settings(epochs=4, schedule="step", milestones=[1, 3])  # type: ignore[arg-type]
    assert read == Settings(epochs=4, schedule="step", milestones=(1, 3))


def torch_rates(settings: Settings) -> list[float]:
    """What torch's schedulers give, stepped after every step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], settings.rate)
    rising, total = settings.warmup * STEPS, settings.epochs * STEPS
    after: lr_scheduler.LRScheduler
    if settings.schedule == "cosine":
        after = lr_scheduler.CosineAnnealingLR(optimizer, total - rising)
    elif settings.schedule == "step":
        after = lr_scheduler.MultiStepLR(optimizer, [m * STEPS - rising for m in settings.milestones], settings.factor)
    else:
        after = lr_scheduler.ConstantLR(optimizer, factor=1.0)
    scheduler = after
    if rising:
        before = lr_scheduler.LinearLR(optimizer, 1 / rising, total_iters=rising - 1)
        scheduler = lr_scheduler.SequentialLR(optimizer, [before, after], [rising])
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("warmup", [0, 1, 2])
@pytest.mark.parametrize(
    "schedule",
    [{"schedule": "cosine"}, {"schedule": "step", "milestones": (3, 5), "factor": 0.2}, {"schedule": "constant"}],
    ids=lambda schedule: schedule["schedule"],
)
def test_rates_are_those_of_torch(schedule: dict[str, Any], warmup: int) -> None:
    settings = Settings(epochs=7, rate=0.3, warmup=warmup, **schedule)
    rates = [rate_at(settings, step, STEPS) for step in range(7 * STEPS)]
    assert rates == pytest.approx(torch_rates(settings), rel=1e-9, abs=1e-12)
