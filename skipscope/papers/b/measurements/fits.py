"""Numbers that the evidence for claims is made of: slopes on logarithmic scales, and extremes per seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy


def log_slope(x: numpy.ndarray, y: numpy.ndarray) -> float:
    """Of log y over log x, by least squares, where y is finite."""
    seen = numpy.isfinite(y)
    return float(numpy.polyfit(numpy.log(x[seen]), numpy.log(y[seen]), 1)[0]) if seen.sum() > 1 else math.nan


def extreme_per_seed(rows: Sequence[numpy.ndarray], extreme: Callable[..., Any]) -> list[float]:
    """The largest or smallest (numpy.max, numpy.min) of rows with one value per seed; none where there are no rows."""
    return extreme(rows, axis=0).tolist() if len(rows) else []
