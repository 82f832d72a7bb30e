"""Numbers with their uncertainty: what a criterion compares with its threshold.

Networks are the replicates. A quantity has one value per network, and its interval is Student's t over these values,
on the scale on which they spread evenly:

    plain         as they are
    ratio         logarithms: ratios, condition numbers, growth factors
    share         logits, kept .001 away from 0 and 1
    correlation   Fisher's z, kept within .99

Other estimates have an interval of their own: a rank correlation (bootstrap), a slope, a difference of two cells with
the variance of all cells, and a number of all networks together (jackknife). Values that do not spread have an interval
of no width: then the value itself decides.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy

from skipscope.runs.decisions import CONFIDENCE, Interval, mean_of, numbers_of

Scale = Literal["plain", "ratio", "share", "correlation"]

ROUNDING = 1e-9  # by which a share or a correlation may leave its scale
SHARE_MARGIN = 1e-3  # from 0 and 1
LARGEST_CORRELATION = 0.99
BOOTSTRAP_FROM = 20  # configurations that can be resampled themselves; of fewer, their networks are
NETWORKS_OF_CONFIGURATION = 5  # at least, where networks are resampled within configurations
RESAMPLES = 9999
MOST_NEEDED = 10_000  # networks; more are never trained


def _logit(values: Any) -> Any:
    kept = numpy.clip(values, SHARE_MARGIN, 1 - SHARE_MARGIN)
    return numpy.log(kept) - numpy.log1p(-kept)


def _same(values: Any) -> Any:
    return values


def _expit(values: Any) -> Any:
    return 1 / (1 + numpy.exp(-values))


def _fisher_z(values: Any) -> Any:
    return numpy.arctanh(numpy.clip(values, -LARGEST_CORRELATION, LARGEST_CORRELATION))


_TO_SCALE: dict[str, Callable[[Any], Any]] = {
    "plain": _same,
    "ratio": numpy.log,
    "share": _logit,
    "correlation": _fisher_z,
}
_FROM_SCALE: dict[str, Callable[[Any], Any]] = {
    "plain": _same,
    "ratio": numpy.exp,
    "share": _expit,
    "correlation": numpy.tanh,
}
DOMAINS: dict[str, Interval] = {
    "plain": (-math.inf, math.inf),
    "ratio": (0.0, math.inf),
    "share": (0.0, 1.0),
    "correlation": (-1.0, 1.0),
}


class Estimate(ABC):
    """A number, how many networks it comes from, and where it may lie."""

    @property
    @abstractmethod
    def value(self) -> float: ...

    @property
    @abstractmethod
    def n(self) -> int:
        """Networks."""

    @abstractmethod
    def interval(self, level: float = CONFIDENCE) -> Interval: ...

    @property
    @abstractmethod
    def members(self) -> list[float]:
        """One number per network where it has such numbers, for the record."""

    @property
    def infinite(self) -> int:
        """Values that are infinite on the scale, so that there is no interval."""
        return 0

    def needed(self, thresholds: Sequence[float]) -> int | None:
        """Networks whose interval would lie on one side of all thresholds, if they spread as these do.

        None where no number of them would: the value is on a threshold.
        """
        low, high = self.interval()
        nearest = min(abs(self.value - threshold) for threshold in thresholds)
        if nearest == 0 or not math.isfinite(high - low):
            return None
        count = math.ceil(self.n * ((high - low) / 2 / nearest) ** 2)
        return max(count, self.n + 1) if count <= MOST_NEEDED else None


def estimated(value: Any, scale: Scale = "plain") -> Estimate:
    """Of what a study measured: an estimate, a number, or one number per network."""
    return value if isinstance(value, Estimate) else PerNetwork(value, scale)


class PerNetwork(Estimate):
    """The mean over networks, on a scale, with Student's interval there."""

    def __init__(self, values: Any, scale: Scale = "plain") -> None:
        if scale not in get_args(Scale):
            raise ValueError(f"the scale is one of {', '.join(get_args(Scale))}, not {scale!r}")
        self._values = numbers_of(values)
        self._scale = scale
        low, high = DOMAINS[scale]
        outside = self._values[(self._values < low - ROUNDING) | (self._values > high + ROUNDING)]
        if outside.size:
            raise ValueError(f"a {scale} is from {low:g} to {high:g}, not {outside.flat[0]:g}")

    @property
    def values(self) -> numpy.ndarray:
        return self._values.ravel()

    @property
    def n(self) -> int:
        return int(self._values.size)

    @property
    def members(self) -> list[float]:
        return [float(value) for value in self.values]

    @cached_property
    def _scaled(self) -> numpy.ndarray:
        with numpy.errstate(divide="ignore", invalid="ignore"):
            return numpy.asarray(_TO_SCALE[self._scale](self.values), dtype=float)

    @property
    def infinite(self) -> int:
        return 0 if self.alike else int(numpy.isinf(self._scaled).sum())

    @property
    def alike(self) -> bool:
        """Whether all values are the same, infinite ones too."""
        return bool((self.values == self.values[0]).all())

    @property
    def value(self) -> float:
        if self.alike:
            return float(self.values[0])
        return float(_FROM_SCALE[self._scale](mean_of(self._scaled)))

    def interval(self, level: float = CONFIDENCE) -> Interval:
        if self.alike:
            return self.value, self.value
        low, high = student(self._scaled, level)
        back = _FROM_SCALE[self._scale]
        with numpy.errstate(over="ignore"):
            return float(back(low)), float(back(high))

    def needed(self, thresholds: Sequence[float]) -> int | None:
        from scipy.stats import t

        spread = float(self._scaled.std(ddof=1)) if self.n > 1 else math.inf
        scaled = _TO_SCALE[self._scale]
        with numpy.errstate(divide="ignore"):
            nearest = min(abs(mean_of(self._scaled) - float(scaled(threshold))) for threshold in thresholds)
        if not math.isfinite(spread) or nearest == 0:
            return None
        counts = numpy.unique(numpy.geomspace(self.n + 1, MOST_NEEDED, 400).astype(int))
        halves = t.ppf((1 + CONFIDENCE) / 2, counts - 1) * spread / numpy.sqrt(counts)
        enough = counts[halves < nearest]
        return int(enough[0]) if enough.size else None


def student(values: numpy.ndarray, level: float = CONFIDENCE) -> Interval:
    """Of the mean of two or more values; of one value, everything."""
    from scipy.stats import t

    mean, count = mean_of(values), values.size
    if count < 2 or not numpy.isfinite(values).all():
        return (-math.inf, math.inf)
    error = math.sqrt(float(((values - mean) ** 2).sum()) / (count * (count - 1)))
    half = float(t.ppf((1 + level) / 2, count - 1)) * error
    return mean - half, mean + half


@dataclass(frozen=True)
class RankCorrelation(Estimate):
    """Spearman's, with a percentile bootstrap.

    With 20 configurations or more these are resampled; with fewer, networks within each configuration. A network that
    is drawn twice is tied with itself, and ties within a configuration, which ties the other side too, raise the
    correlation: all resampled values can be above the value itself. The interval then reaches down to it.
    """

    first: Sequence[float]
    second: Sequence[float]
    configurations: Sequence[Any] = ()  # of each network; by default each is its own

    def __post_init__(self) -> None:
        count = len(self.first)
        if len(self.second) != count or len(self.configurations) not in (0, count):
            raise ValueError("a rank correlation has as many first as second values and configurations")
        groups = self._groups
        smallest = min(map(len, groups), default=0)
        if len(groups) < BOOTSTRAP_FROM and smallest < NETWORKS_OF_CONFIGURATION:
            raise ValueError(
                f"a rank correlation over {len(groups)} configurations needs {NETWORKS_OF_CONFIGURATION} networks of "
                f"each, or {BOOTSTRAP_FROM} configurations; the smallest has {smallest}"
            )

    @cached_property
    def _groups(self) -> list[numpy.ndarray]:
        """The places of the networks of each configuration."""
        named = list(self.configurations) or list(range(len(self.first)))
        return [numpy.array([place for place, name in enumerate(named) if name == own]) for own in dict.fromkeys(named)]

    @property
    def value(self) -> float:
        places = numpy.arange(len(self.first))[None]
        return float(_spearman(numpy.asarray(self.first)[places], numpy.asarray(self.second)[places])[0])

    @property
    def n(self) -> int:
        return len(self.first)

    @property
    def members(self) -> list[float]:
        return []

    def interval(self, level: float = CONFIDENCE) -> Interval:
        low, high = numpy.quantile(self._resampled, [(1 - level) / 2, (1 + level) / 2])
        return min(float(low), self.value), max(float(high), self.value)

    @cached_property
    def _resampled(self) -> numpy.ndarray:
        random, groups = numpy.random.default_rng(0), self._groups
        if len(groups) >= BOOTSTRAP_FROM and all(len(group) == 1 for group in groups):
            places = random.integers(self.n, size=(RESAMPLES, self.n))
        elif len(groups) >= BOOTSTRAP_FROM:
            drawn = random.integers(len(groups), size=(RESAMPLES, len(groups)))
            each = [numpy.concatenate([groups[number] for number in row]) for row in drawn]
            lengths, found = numpy.array([len(row) for row in each]), numpy.empty(RESAMPLES)
            for length in set(lengths.tolist()):  # all rows of a length at once: one by one takes seconds
                same = numpy.flatnonzero(lengths == length)
                found[same] = self._of(numpy.stack([each[number] for number in same]))
            return found
        else:
            within = [group[random.integers(len(group), size=(RESAMPLES, len(group)))] for group in groups]
            places = numpy.concatenate(within, axis=1)
        return self._of(places)

    def _of(self, places: numpy.ndarray) -> numpy.ndarray:
        return _spearman(numpy.asarray(self.first)[places], numpy.asarray(self.second)[places])


def _spearman(first: numpy.ndarray, second: numpy.ndarray) -> numpy.ndarray:
    """Of each row; 0 where one side does not vary."""
    from scipy.stats import rankdata

    ranks = [rankdata(side, axis=1) for side in (first, second)]
    ranks = [side - side.mean(1, keepdims=True) for side in ranks]
    products, squares = (ranks[0] * ranks[1]).sum(1), [(side**2).sum(1) for side in ranks]
    scale = numpy.sqrt(squares[0] * squares[1])
    return numpy.divide(products, scale, out=numpy.zeros_like(products), where=scale > 0)


@dataclass(frozen=True)
class Slope(Estimate):
    """Of the line of least squares through all networks, with Student's interval."""

    at: Sequence[float]  # of each network
    values: Sequence[float]

    @property
    def value(self) -> float:
        return float(self._fitted.slope)

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def members(self) -> list[float]:
        return [float(value) for value in self.values]

    @cached_property
    def _fitted(self) -> Any:
        from scipy.stats import linregress

        return linregress(self.at, self.values)

    def interval(self, level: float = CONFIDENCE) -> Interval:
        from scipy.stats import t

        half = float(t.ppf((1 + level) / 2, self.n - 2)) * float(self._fitted.stderr)
        return self.value - half, self.value + half


@dataclass(frozen=True)
class Difference(Estimate):
    """The mean of one cell less that of another, with the variance within all cells of the claim."""

    one: Sequence[float]  # of each network
    other: Sequence[float]
    cells: Sequence[Sequence[float]] = ()  # others of the claim, whose variance counts too

    @property
    def value(self) -> float:
        return float(numpy.mean(self.one) - numpy.mean(self.other))

    @property
    def n(self) -> int:
        return min(len(self.one), len(self.other))

    @property
    def members(self) -> list[float]:
        return []

    def interval(self, level: float = CONFIDENCE) -> Interval:
        from scipy.stats import t

        cells = [numpy.asarray(cell, dtype=float) for cell in (self.one, self.other, *self.cells)]
        freedom = sum(cell.size - 1 for cell in cells)
        if freedom < 1:
            return (-math.inf, math.inf)
        variance = sum(float(((cell - cell.mean()) ** 2).sum()) for cell in cells) / freedom
        error = math.sqrt(variance * (1 / len(self.one) + 1 / len(self.other)))
        half = float(t.ppf((1 + level) / 2, freedom)) * error
        return self.value - half, self.value + half


@dataclass(frozen=True)
class Jackknife(Estimate):
    """A number of all networks together, with the numbers that come out with each of them left out."""

    whole: float
    without: Sequence[float]
    scale: Scale = "plain"

    @property
    def value(self) -> float:
        return float(self.whole)

    @property
    def n(self) -> int:
        return len(self.without)

    @property
    def members(self) -> list[float]:
        return [float(value) for value in self.without]

    def interval(self, level: float = CONFIDENCE) -> Interval:
        from scipy.stats import t

        scaled = numpy.asarray(_TO_SCALE[self.scale](numpy.asarray(self.without, dtype=float)))
        middle = float(_TO_SCALE[self.scale](numpy.float64(self.whole)))
        half = float(t.ppf((1 + level) / 2, self.n - 1)) * math.sqrt((self.n - 1) * float(scaled.var()))
        back = _FROM_SCALE[self.scale]
        return float(back(middle - half)), float(back(middle + half))
