"""What a training run was like, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import xarray

PER_EPOCH = {
    "loss": "mean over the steps of the epoch, each before its update",
    "rate": "learning rate of the last step",
    "seconds": "of the steps alone, without tests and hooks",
    "train_accuracy": "share of right answers during the epoch, in training mode, on augmented images",
    "test_accuracy": "share of right answers after the epoch, in evaluation mode",
}


@dataclass
class History:
    """One entry per epoch in every list."""

    loss: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    test_accuracy: list[float | None] = field(default_factory=list)  # None: not tested after this epoch
    diverged_at: int | None = None  # the first step with a loss that is not finite, counted from 0

    @property
    def status(self) -> str:
        return "finished" if self.diverged_at is None else "diverged"

    @property
    def epochs(self) -> int:
        return len(self.loss)

    def to_dict(self) -> dict[str, Any]:
        return {"status": self.status, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; a number that a JSON document holds as null was not finite."""
        found = {one.name: content[one.name] for one in fields(cls)}
        for name in ("loss", "rate", "seconds", "train_accuracy"):
            found[name] = [float("nan") if value is None else value for value in found[name]]
        return cls(**found)

    def to_dataset(self) -> xarray.Dataset:
        """With the dimension `epoch`, counted from 1: what stands at epoch e is known after e epochs."""
        import numpy
        import xarray

        columns = {name: numpy.array(getattr(self, name), dtype=float) for name in PER_EPOCH}  # None becomes nan
        return xarray.Dataset(
            {name: ("epoch", values, {"long_name": PER_EPOCH[name]}) for name, values in columns.items()},
            coords={"epoch": numpy.arange(1, self.epochs + 1)},
            attrs={"status": self.status} | ({} if self.diverged_at is None else {"diverged_at": self.diverged_at}),
        )
