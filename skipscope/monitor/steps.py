"""The steps of a training as the monitor is told of them: their numbers, losses and rates.

A loss on a GPU is kept as a tensor and read at looks alone: reading it would make every step wait for the GPU.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy
from torch import Tensor

from skipscope.errors import InputError
from skipscope.monitor.recording import MEASURE

if TYPE_CHECKING:
    import xarray


class Steps:
    """last: the number of the last step, from 1 on."""

    def __init__(self) -> None:
        self.last = 0
        self.numbers: list[int] = []
        self.losses: list[float | Tensor] = []
        self.rates: list[float] = []
        self._rate = math.nan  # of the last step
        self._judged = 0  # losses that `first_not_finite` has seen

    @classmethod
    def of(cls, dataset: xarray.Dataset) -> Steps:
        """From what a run folder has of them."""
        found = cls()
        found.numbers = dataset["step"].values.tolist()
        found.losses, found.rates = dataset["loss"].values.tolist(), dataset["rate"].values.tolist()
        found.last = found.numbers[-1] if found.numbers else 0
        found._judged = len(found.losses)
        return found

    def forget(self, step: int) -> None:
        """All from this step on."""
        kept = bisect_left(self.numbers, step)
        for column in (self.numbers, self.losses, self.rates):
            del column[kept:]
        self._judged = min(self._judged, kept)

    def count(self, loss: Tensor | float | None, step: int | None, rate: float) -> int:
        """The number of this step; one from before a resumption is replaced."""
        self.last = self.last + 1 if step is None else _checked(step)
        self._rate = rate
        if loss is not None:
            self.note_loss(loss)
        else:
            self.forget(self.last)
        return self.last

    def note_loss(self, loss: Tensor | float) -> None:
        """That of the last step, where it was not known when the step was counted."""
        value = _number(loss)
        self.forget(self.last)
        self.numbers.append(self.last)
        self.losses.append(value)
        self.rates.append(self._rate)

    def first_not_finite(self, *, waiting: bool) -> tuple[int, float] | None:
        """The first step with a loss that is not finite, and that loss, of those that were not asked about before.
        waiting: also of losses that a GPU holds."""
        for place in range(self._judged, len(self.losses)):
            if isinstance(self.losses[place], Tensor) and not waiting:
                return None
            self.losses[place] = loss = float(self.losses[place])
            self._judged = place + 1
            if not math.isfinite(loss):
                return self.numbers[place], loss
        return None

    def to_dataset(self, **about: Any) -> xarray.Dataset:
        import xarray

        self.losses = [float(loss) for loss in self.losses]
        return xarray.Dataset(
            {
                "loss": ("step", numpy.array(self.losses, float), {"long_name": "loss of the training", "units": "1"}),
                "rate": ("step", numpy.array(self.rates, float), {"long_name": "rate of the optimizer", "units": "1"}),
            },
            {"step": ("step", self.numbers, {"long_name": "step of the training", "units": "count"})},
            {"measure": MEASURE, "part": "loss", **about},
        )


def _checked(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, bool):
        raise InputError(f"step={step!r}: expected the number of a step, a whole number from 0 on")
    return number


def _number(loss: Tensor | float) -> float | Tensor:
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise InputError(f"step(loss): expected one number, got a tensor of shape {tuple(loss.shape)}")
        value = loss.detach().reshape(())
        return float(value) if value.device.type == "cpu" else value.clone()
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise InputError(f"step(loss): expected one number, got a {type(loss).__name__}") from None
