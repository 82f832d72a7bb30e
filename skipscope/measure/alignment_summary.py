"""What a dataset of `alignment` shows of a whole network.

Pairs of units, those whose states fit: `all` with i != j, `adjacent` with |i - j| = 1, `last_half` with i != j both in
the later half of the units. First means over the pairs of one sample, then over the samples; `..._spread` is the
standard deviation over the samples, NaN of a single one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.errors import InputError
from skipscope.measure.descriptions import described
from skipscope.renamed import keep_old_names

if TYPE_CHECKING:
    import xarray

PAIRS = ("all", "adjacent", "last_half")
COUPLINGS = ("ujv", "ujv_signed", "vju", "vju_signed")
ALONE = ("u1v1", "energy", "gap", "large")


@dataclass(frozen=True)
class DepthFit:
    """A line through 1 / s against depth 1, 2, ..., s the mean over the samples of the largest value."""

    first: int  # units left out at the beginning
    slope: float
    intercept: float
    r_squared: float
    log_log_slope: float  # of log s against log depth: -1 for s = c / depth
    units: int  # points of the fit
    samples: int


def alignment_summary(dataset: xarray.Dataset) -> xarray.Dataset:
    """Dimension `pairs`: couplings `ujv`, `vju` and their signed versions, each with `..._chance` of the same pairs,
    the ratio `..._over_chance` of the two means, `..._spread` and `..._count` of pairs. Without it: means over units
    and samples of u1v1, energy, gap and large, with their spread and the number of units that have one."""
    import xarray

    _check(dataset)
    found: dict[str, Any] = {}
    which = {pairs: _which(dataset.sizes["unit"], pairs) for pairs in PAIRS}
    for name in COUPLINGS:
        value = dataset[f"coupling_{name}"].transpose("sample", "unit", "other").values
        columns = [_spread(value[:, which[pairs]]) for pairs in PAIRS]
        for suffix, column in zip(("", "_spread", "_count"), zip(*columns, strict=True), strict=True):
            found[f"{name}{suffix}"] = ("pairs", numpy.array(column))
        if "chance" in dataset:
            level = dataset["chance_signed" if name.endswith("_signed") else "chance"]
            chance = level.where(dataset[f"coupling_{name}"].notnull()).transpose("sample", "unit", "other").values
            levels = numpy.array([_spread(chance[:, which[pairs]])[0] for pairs in PAIRS])
            found[f"{name}_chance"] = ("pairs", levels)
            found[f"{name}_over_chance"] = ("pairs", found[name][1] / levels)
    for name in ALONE:
        own = dataset[name].transpose("sample", "unit")
        if name == "large" and own.isnull().any():
            own = own.where(False)  # more than were computed: a mean of the others would be too low
        mean, spread, count = _spread(own.values)
        found |= {name: mean, f"{name}_spread": spread, f"{name}_count": count}
    attributes = {"samples": dataset.sizes["sample"], "units": dataset.sizes["unit"]}
    return described(xarray.Dataset(found, {"pairs": list(PAIRS)}, attributes), "alignment_summary")


def depth_fit(dataset: xarray.Dataset, first: int | None = None) -> DepthFit:
    """first: how many units at the beginning are left out; a quarter of them by default, 9 in the paper's figures.

    Numbers are NaN where fewer than three units are left: a line through two points says nothing.
    """
    _check(dataset)
    count = dataset.sizes["unit"]
    left_out = count // 4 if first is None else first
    if left_out < 0:
        raise InputError(f"first={first}: expected how many units to leave out, from 0 on")
    largest = dataset["value"].isel(rank=0).mean("sample").values
    usable = (numpy.arange(count) >= left_out) & (largest > 0)
    depth, largest = numpy.arange(1, count + 1)[usable].astype(float), largest[usable]
    slope = intercept = r_squared = log_log_slope = float("nan")
    if len(depth) >= 3:
        slope, intercept = map(float, numpy.polyfit(depth, 1 / largest, 1))
        spread = ((1 / largest - (1 / largest).mean()) ** 2).sum()
        rest = ((1 / largest - slope * depth - intercept) ** 2).sum()
        r_squared = float(1 - rest / spread) if spread > 0 else float("nan")
        log_log_slope = float(numpy.polyfit(numpy.log(depth), numpy.log(largest), 1)[0])
    return DepthFit(left_out, slope, intercept, r_squared, log_log_slope, len(depth), dataset.sizes["sample"])


def _check(dataset: xarray.Dataset) -> None:
    if dataset.attrs.get("measure") != "alignment":
        raise InputError(f"expected a dataset of ss.alignment, got one of {dataset.attrs.get('measure', 'no measure')}")


def _which(count: int, pairs: str) -> numpy.ndarray:
    """(unit, other): True for the pairs of a kind."""
    i, j = numpy.indices((count, count))
    if pairs == "adjacent":
        return numpy.asarray(abs(i - j) == 1)
    return numpy.asarray((i != j) & ((numpy.minimum(i, j) >= count // 2) | (pairs == "all")))


def _spread(values: numpy.ndarray) -> tuple[float, float, int]:
    """Mean and standard deviation over the samples of the means over the rest, and of how many: (sample, ...)."""
    there = numpy.isfinite(values)
    counts = there.sum(1)
    means = numpy.where(there, values, 0).sum(1)[counts > 0] / counts[counts > 0]
    mean = float(means.mean()) if len(means) else float("nan")
    deviation = float(means.std(ddof=1)) if len(means) > 1 else float("nan")
    return mean, deviation, int(there.any(0).sum())


keep_old_names(__name__)
