"""The steps of a training as the monitor is told of them: their numbers, losses and rates.

A loss on a GPU is kept as a tensor and read at looks alone: reading it would make every step wait for the GPU.
"""

from __future__ import annotations

import math
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

    @classmethod
    def of(cls, dataset: xarray.Dataset) -> Steps:
        """From what a run folder has of them."""
        found = cls()
        found.numbers = dataset["step"].values.tolist()
        found.losses, found.rates = dataset["loss"].values.tolist(), dataset["rate"].values.tolist()
        found.last = found.numbers[-1] if found.numbers else 0
        return found

    def forget(self, step: int) -> None:
        """All from this step on."""
        kept = bisect_left(self.numbers, step)
        for column in (self.numbers, self.losses, self.rates):
            del column[kept:]

    def count(self, loss: Tensor | float | None, step: int | None, rate: float) -> int:
        """The number of this step; one from before a resumption is replaced."""
        if step is not None and step < 0:
            raise InputError(f"step={step}: expected the number of a step from 0 on")
        self.last = self.last + 1 if step is None else int(step)
        if loss is not None:
            self.note_loss(loss, rate)
        else:
            self.forget(self.last)
        return self.last

    def note_loss(self, loss: Tensor | float, rate: float = math.nan) -> None:
        """That of the last step, where it was not known when the step was counted."""
        value = _number(loss)
        self.forget(self.last)
        self.numbers.append(self.last)
        self.losses.append(value)
        self.rates.append(rate)

    @property
    def last_loss(self) -> float | None:
        """None where no loss was given."""
        return float(self.losses[-1]) if self.losses else None

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
