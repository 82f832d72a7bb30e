"""What determines a training run, apart from model and data: checked when it is made, the same on every device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from skipscope.constraints import Constrained, Expectation, above, at_least, below, each, finite, one_of, rising, whole
from skipscope.data.specs import AUGMENTATIONS

SCHEDULES = ("cosine", "step", "constant")
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Settings(Constrained):
    """Stochastic gradient descent on the cross-entropy."""

    epochs: Annotated[int, whole, at_least(1)]
    # Of all processes together; what does not fill a last batch is left out of an epoch.
    batch: Annotated[int, whole, at_least(2)] = 64

    # Of learning: where the schedule begins, after the warm-up.
    rate: Annotated[float, above(0), finite] = 0.1
    # "cosine": to zero along half a cosine; "step": times `factor` at each milestone.
    schedule: Annotated[str, one_of(*SCHEDULES)] = "cosine"
    milestones: Annotated[tuple[int, ...], each(whole, at_least(1)), rising] = ()  # epochs after which the rate falls
    factor: Annotated[float, above(0), finite] = 0.1
    warmup: Annotated[int, whole, at_least(0)] = 0  # epochs in which the rate rises linearly

    momentum: Annotated[float, at_least(0), below(1)] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[float, at_least(0), finite] = 5e-4
    decay_norms: bool = True  # False: vectors (the scales and shifts of norms, biases) do not decay
    clip: Annotated[float | None, above(0), finite] = None  # the largest norm of the whole gradient

    label_smoothing: Annotated[float, at_least(0), below(1)] = 0.0
    augmentation: Annotated[str, one_of(*AUGMENTATIONS)] = "none"  # a name of skipscope.data.augmentation
    # Of the forward pass where torch.autocast finds it safe; weights keep their own.
    precision: Annotated[str, one_of(*PRECISIONS)] = "float32"
    # Of the order of the samples, of the augmentation, and of dropout.
    seed: Annotated[int, whole, at_least(0)] = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        super().__post_init__()

    def expectations(self) -> Iterator[Expectation]:
        yield (
            self.warmup < self.epochs,
            f"warmup: expected fewer epochs than there are, {self.epochs}, got {self.warmup}",
        )
        yield (
            (self.schedule == "step") == bool(self.milestones),
            f"milestones: expected some with schedule='step' and none without, got {self.milestones} with "
            f"schedule='{self.schedule}'",
        )
        yield (
            not self.milestones or self.milestones[-1] < self.epochs,
            f"milestones: expected epochs from 1 to {self.epochs - 1}, got {self.milestones}",
        )
        yield (
            not self.nesterov or self.momentum > 0,
            f"nesterov: expected a momentum above 0 with it, got {self.momentum}",
        )


def rate_at(settings: Settings, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0.

    The warm-up's first step has the first of equal parts of `rate`, its last step the whole. A cosine falls over what
    the warm-up leaves; milestones are counted from the beginning of the training.
    """
    rising = settings.warmup * steps_per_epoch
    if step < rising:
        return settings.rate * (step + 1) / rising
    if settings.schedule == "cosine":
        share = (step - rising) / (settings.epochs * steps_per_epoch - rising)
        return settings.rate * (1 + math.cos(math.pi * share)) / 2
    passed = sum(milestone * steps_per_epoch <= step for milestone in settings.milestones)
    return settings.rate * settings.factor**passed
