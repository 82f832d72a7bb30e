"""How far apart two kinds of networks are, and how far apart networks of one kind are that differ in their seeds.

The second is the floor of the first: what seeds alone do is no difference of kinds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy

from skipscope.numerics import seed_of
from skipscope.papers.kit.estimates import Difference

SPLITS = 64  # random halves of the networks of one kind


def apart(one: numpy.ndarray, other: numpy.ndarray, cells: Sequence[numpy.ndarray] = ()) -> Difference | float:
    """|mean of one - mean of other| over their networks; cells: others of the claim, whose variance counts too.

    The larger mean comes first: then the interval is below a threshold where the one of the difference lies between
    minus and plus the threshold. Not a number where a network has no finite value.
    """
    if not all(len(cell) and numpy.isfinite(cell).all() for cell in (one, other)):
        return math.nan
    first, second = (one, other) if one.mean() >= other.mean() else (other, one)
    kept = [cell.tolist() for cell in cells if len(cell) and numpy.isfinite(cell).all()]
    return Difference(first.tolist(), second.tolist(), kept)


def farthest(one: numpy.ndarray, other: numpy.ndarray) -> int:
    """The place at which two kinds, each (network, place), have means that are farthest apart."""
    gaps = abs(one.mean(0) - other.mean(0))
    return int(numpy.nanargmax(gaps)) if numpy.isfinite(gaps).any() else 0


def between_seeds(values: numpy.ndarray) -> float:
    """The largest |difference of means| over places between two halves of the networks of one kind.

    values: (network, place). Mean over SPLITS random halves; not a number of fewer than two networks.
    """
    count = len(values)
    if count < 2:
        return math.nan
    random = numpy.random.default_rng(seed_of("halves of networks", count))
    orders = [random.permutation(count) for _ in range(SPLITS)]
    halves = [(values[order[: count // 2]].mean(0), values[order[count // 2 :]].mean(0)) for order in orders]
    return float(numpy.mean([numpy.max(abs(one - other)) for one, other in halves]))
