"""The data of paper B: whitened principal components of training images, with one-hot targets."""

from __future__ import annotations

from dataclasses import dataclass

from skipscope.data import whiten
from skipscope.papers.b.networks import Moments, Samples
from skipscope.papers.kit import Bench, Quantity

COMPONENTS = 10  # as many as there are classes: the networks are square
LOWEST_LOSS = Quantity("lowest loss of a linear map")


@dataclass(frozen=True, eq=False)
class WhitenedData:
    """COMPONENTS values per input and per target, in float64, on the device of the bench."""

    samples: Samples
    moments: Moments  # of these samples
    name: str  # of the data set

    def first(self, count: int | None) -> Samples:
        """The first so many samples; None: all of them."""
        return Samples(self.samples.x[:count], self.samples.y[:count])


def whitened_data(bench: Bench, spec: str) -> WhitenedData:
    """The training images of a data set."""
    found = bench.data(spec)
    white = whiten(found, COMPONENTS)
    samples = Samples(white.x.to(bench.device), white.y.to(bench.device))
    return WhitenedData(samples, Moments.of(samples), found.name)
