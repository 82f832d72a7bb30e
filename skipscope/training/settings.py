"""What determines a training run, beside the model and the data: checked when it is made, the same on every device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from skipscope.data.specs import AUGMENTATIONS
from skipscope.errors import InputError

SCHEDULES = ("cosine", "step", "constant")
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Settings:
    """Stochastic gradient descent on the cross-entropy."""

    epochs: int
    batch: int = 64  # of all processes together; what does not fill a last batch is left out of an epoch

    rate: float = 0.1  # of learning: where the schedule begins, after the warm-up
    schedule: str = "cosine"  # to zero along half a cosine; "step": times `factor` at each milestone; "constant"
    milestones: tuple[int, ...] = ()  # epochs after which the rate falls
    factor: float = 0.1
    warmup: int = 0  # epochs in which the rate rises linearly

    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    decay_norms: bool = True  # False: vectors (the scales and shifts of norms, biases) do not decay
    clip: float | None = None  # the largest norm of the whole gradient

    label_smoothing: float = 0.0
    augmentation: str = "none"  # a name of skipscope.data.augmentation
    precision: str = "float32"  # of the forward pass where torch.autocast finds it safe; weights keep their own
    seed: int = 0  # of the order of the samples, of the augmentation, and of dropout

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        self._check_counts()
        self._check_numbers()
        _expect_one_of("schedule", self.schedule, SCHEDULES)
        _expect_one_of("precision", self.precision, PRECISIONS)
        self._check_milestones()
        if self.nesterov and self.momentum == 0:
            raise InputError("training: nesterov needs a momentum above 0, got 0")
        _expect_one_of("augmentation", self.augmentation, AUGMENTATIONS)

    def _check_counts(self) -> None:
        for name, least in (("epochs", 1), ("batch", 2), ("warmup", 0), ("seed", 0)):
            value = getattr(self, name)
            if not _is_count(value) or value < least:
                raise InputError(f"training: expected {name} as a whole number of at least {least}, got {value!r}")
        if self.warmup >= self.epochs:
            raise InputError(f"training: the warm-up takes {self.warmup} of {self.epochs} epochs; leave at least one")

    def _check_numbers(self) -> None:
        clip = 1.0 if self.clip is None else self.clip
        for name, value, fits, expected in (
            ("rate", self.rate, self.rate > 0, "above 0"),
            ("factor", self.factor, self.factor > 0, "above 0"),
            ("momentum", self.momentum, 0 <= self.momentum < 1, "from 0 to below 1"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "of at least 0"),
            ("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "from 0 to below 1"),
            ("clip", self.clip, clip > 0, "above 0, or None"),
        ):
            if not fits or (value is not None and not math.isfinite(value)):
                raise InputError(f"training: expected {name} {expected}, got {value!r}")

    def _check_milestones(self) -> None:
        if (self.schedule == "step") != bool(self.milestones):
            raise InputError(
                f"training: the schedule 'step' and milestones go together, got '{self.schedule}' and {self.milestones}"
            )
        if not all(map(_is_count, self.milestones)) or list(self.milestones) != sorted(set(self.milestones)):
            raise InputError(f"training: expected milestones as rising epochs, got {self.milestones}")
        if self.milestones and not 1 <= self.milestones[0] <= self.milestones[-1] < self.epochs:
            raise InputError(f"training: expected milestones from 1 to {self.epochs - 1}, got {self.milestones}")


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


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _expect_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"training: no {name} '{value}'; known: {', '.join(known)}")
