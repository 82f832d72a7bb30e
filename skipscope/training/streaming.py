"""Distributions of more numbers than fit into memory, at any scale.

A `Stream` counts numbers by sign and magnitude. A bin is what has one exponent and the same four leading binary digits
after the point in float64, so 16 bins of equal width between two powers of two: their edges are exact, and none is
wider than 1/16 of its lower edge. Every finite float has a bin; memory is half a megabyte, whatever is counted. The
harmonic mean of a bin's edges differs from every number in it by at most 1/33 (`RELATIVE_ERROR`) of that number, and
so does every quantile; numbers below 2.2e-308, which float64 holds with fewer digits, are within 7e-310 instead.

Extremes and counts are exact. Mean and deviation are sums in float64, joined as by Chan, Golub and LeVeque (1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError

STEPS = 16  # bins between two powers of two
RELATIVE_ERROR = 1 / (2 * STEPS + 1)
COARSE = 4  # bins between two powers of two in a histogram that is kept

_DIGITS = 52  # of a float64 after the point
_SHIFT = _DIGITS - 4  # leaves the exponent and the first four of them: 2**4 = STEPS
_INFINITY = 2047 * STEPS  # the place of an infinite magnitude; finite ones are at 0, 1, ... before it
_ZERO = _INFINITY + 1  # the place of 0: negative numbers before it in their order, positive ones behind
_NAN = 2 * _ZERO + 1
_AT_A_TIME = 2**22  # numbers, which bounds the memory of an update


class Stream:
    """Takes numbers in any order and any pieces. `update` never waits for the device."""

    def __init__(self, device: torch.device | str | None = None) -> None:
        self._counts = torch.zeros(_NAN + 1, dtype=torch.int64, device=device)
        self._finite, self._mean, self._squares = torch.zeros(3, 1, dtype=torch.float64, device=device)
        self._minimum = torch.full((1,), torch.inf, dtype=torch.float64, device=device)
        self._maximum = torch.full((1,), -torch.inf, dtype=torch.float64, device=device)

    def update(self, tensor: Tensor) -> None:
        """All entries of a tensor of floats, on the stream's device."""
        if not tensor.is_floating_point():
            raise InputError(f"Stream: expected a tensor of real floating-point numbers, got {tensor.dtype}")
        if tensor.device != self._counts.device:
            raise InputError(f"Stream: expected a tensor on {self._counts.device}, got one on {tensor.device}")
        for part in tensor.detach().reshape(-1).split(_AT_A_TIME):
            if part.numel():
                self._take(part.double())

    def distribution(self) -> Distribution:
        """What it has taken so far, on the host."""
        counts = self._counts.cpu().numpy()
        moments = torch.cat([self._finite, self._mean, self._squares, self._minimum, self._maximum]).tolist()
        finite, mean, squares, minimum, maximum = moments
        ordered, nan = counts[:_NAN].copy(), float("nan")
        return Distribution(
            counts=ordered,
            nan=int(counts[_NAN]),
            mean=mean if finite else nan,
            deviation=(squares / finite) ** 0.5 if finite else nan,
            minimum=minimum if ordered.any() else nan,
            maximum=maximum if ordered.any() else nan,
        )

    def _take(self, values: Tensor) -> None:
        """(n,) in float64, n of at least 1."""
        missing, finite = values.isnan(), values.isfinite()
        magnitude = (values.abs().view(torch.int64) >> _SHIFT).clamp_max(_INFINITY)
        place = torch.where(values < 0, _ZERO - 1 - magnitude, _ZERO + 1 + magnitude)
        place = place.masked_fill(values == 0, _ZERO).masked_fill(missing, _NAN)
        self._counts.scatter_add_(0, place, torch.ones_like(place))
        self._minimum = torch.minimum(self._minimum, values.masked_fill(missing, torch.inf).amin())
        self._maximum = torch.maximum(self._maximum, values.masked_fill(missing, -torch.inf).amax())
        count, known = finite.sum().double(), values.masked_fill(~finite, 0.0)
        mean = known.sum() / count.clamp_min(1)
        squares = (known - mean).masked_fill(~finite, 0.0).square().sum()
        total = self._finite + count
        share, step = count / total.clamp_min(1), mean - self._mean
        self._squares = self._squares + squares + step.square() * self._finite * share
        self._mean = self._mean + step * share
        self._finite = total


@dataclass(frozen=True, eq=False)
class Distribution:
    """Order statistics are of all numbers, infinite ones too; mean and deviation of the finite ones; NaN has no order.

    They are NaN where there are no such numbers.
    """

    counts: numpy.ndarray  # by place: negative infinity, negative numbers, 0, positive ones, infinity
    nan: int
    mean: float
    deviation: float  # the squares divided by the number of values
    minimum: float
    maximum: float

    @property
    def count(self) -> int:
        """Of all values, NaN too."""
        return int(self.counts.sum()) + self.nan

    @property
    def zeros(self) -> int:
        return int(self.counts[_ZERO])

    @property
    def infinite(self) -> int:
        return int(self.counts[0] + self.counts[-1])

    def quantile(self, shares: float | Sequence[float]) -> numpy.ndarray:
        """The smallest number that has at least this share of all numbers at or below it, within RELATIVE_ERROR.

        This is NumPy's method "inverted_cdf". The smallest and the largest number are exact.
        """
        sizes = _representatives()
        values = numpy.concatenate([-sizes[::-1], [0.0], sizes])
        found = _quantile(shares, values, self.counts, self.maximum)
        return numpy.where(numpy.equal(shares, 0), self.minimum, numpy.maximum(found, self.minimum))

    def absolute_quantile(self, shares: float | Sequence[float]) -> numpy.ndarray:
        """The same of absolute values; the largest is exact."""
        sizes, negative, positive = _representatives(), self.counts[:_ZERO][::-1], self.counts[_ZERO + 1 :]
        counts = numpy.concatenate([self.counts[_ZERO : _ZERO + 1], negative + positive])
        return _quantile(shares, numpy.concatenate([[0.0], sizes]), counts, max(-self.minimum, self.maximum))

    def bins(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The bins that hold finite numbers, in their order, COARSE between two powers of two; and how many they hold.

        A bin is a whole number, 0 for zeros and negative for negative numbers; `bin_edges` has its edges.
        """
        places = 1 + numpy.flatnonzero(self.counts[1:-1])
        signed = places - _ZERO
        coarse = numpy.sign(signed) * ((abs(signed) - 1) * COARSE // STEPS + 1)
        bins, inverse = numpy.unique(coarse, return_inverse=True)
        counts = numpy.zeros(len(bins), dtype=numpy.int64)
        numpy.add.at(counts, inverse, self.counts[places])
        return bins, counts


def bin_edges(bins: Sequence[int] | numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The lower and the upper edge of bins with these numbers, COARSE of them between two powers of two."""
    numbers = numpy.asarray(bins, dtype=numpy.int64)
    near, far = (_edge((abs(numbers) - away) * (STEPS // COARSE)) for away in (1, 0))
    zero, negative = numbers == 0, numbers < 0
    low = numpy.where(zero, 0.0, numpy.where(negative, -far, near))
    high = numpy.where(zero, 0.0, numpy.where(negative, -near, far))
    return low, high


def rebinned(
    bins: Sequence[int] | numpy.ndarray,
    counts: Sequence[float] | numpy.ndarray,
    edges: Sequence[float] | numpy.ndarray,
) -> numpy.ndarray:
    """Counts of bins as counts between other, rising edges; an edge inside a bin divides its count linearly."""
    edges = numpy.asarray(edges, dtype=float)
    if edges.ndim != 1 or edges.size < 2 or not (numpy.diff(edges) > 0).all():
        raise InputError(f"a histogram expected two or more rising edges, got {edges.tolist()}")
    low, high = (edge[:, None] for edge in bin_edges(bins))
    bounded = numpy.clip(edges, low, high)  # bins, edges
    with numpy.errstate(invalid="ignore"):
        share = (bounded - low) / (high - low)
    below = numpy.where(low == high, edges > low, share)
    return numpy.diff(numpy.asarray(counts, dtype=float) @ below)


def _edge(places: numpy.ndarray) -> numpy.ndarray:
    """The smallest magnitude of a place; that of places below 0, which bin 0 asks for, means nothing."""
    return (numpy.maximum(places, 0) << _SHIFT).view(numpy.float64)


def _representatives() -> numpy.ndarray:
    """The harmonic mean of the edges of every magnitude's bin; of the bins below normal numbers the middle."""
    places = numpy.arange(_INFINITY + 1)
    step = places % STEPS
    values = _edge(places) * (2 * (STEPS + step + 1) / (2 * (STEPS + step) + 1))
    smallest = numpy.finfo(float).smallest_normal / STEPS
    values[:STEPS] = smallest * (step[:STEPS] + 0.5)
    return values


def _quantile(
    shares: float | Sequence[float], values: numpy.ndarray, counts: numpy.ndarray, most: float
) -> numpy.ndarray:
    """Of rising values with their counts; most: the exact largest one."""
    asked = numpy.asarray(shares, dtype=float)
    if not ((asked >= 0) & (asked <= 1)).all():
        raise InputError(f"quantile: expected shares from 0 to 1, got {shares}")
    there = numpy.flatnonzero(counts)
    if not there.size:
        return numpy.full(asked.shape, numpy.nan)
    reached = counts[there].cumsum()
    found = values[there[numpy.searchsorted(reached / reached[-1], asked)]]
    return numpy.where(asked == 1, most, numpy.minimum(found, most))
