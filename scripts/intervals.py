"""Numbers of networks with the interval of their mean, for scripts that write tables of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
from scipy.stats import t

SMALLEST_SHARE = 1e-3  # shares and correlations are kept this far from the ends of their scales, and ratios from zero

SCALES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "plain": (lambda v: v, lambda v: v),
    "ratio": (lambda v: numpy.log(numpy.maximum(v, SMALLEST_SHARE)), numpy.exp),
    "share": (
        lambda v: (
            numpy.log(numpy.clip(v, SMALLEST_SHARE, 1 - SMALLEST_SHARE))
            - numpy.log(1 - numpy.clip(v, SMALLEST_SHARE, 1 - SMALLEST_SHARE))
        ),
        lambda v: 1 / (1 + numpy.exp(-v)),
    ),
    "correlation": (lambda v: numpy.arctanh(numpy.clip(v, -0.99, 0.99)), numpy.tanh),
}

Part = dict[str, Any]


def part_of(claim: str, what: str, values: Any, expected: str = "", scale: str = "plain") -> Part:
    """expected: such as "<= 0.5", "> 0" or "0.9 to 1.1"; empty where the claim says nothing."""
    values = numpy.asarray(values, dtype=float)
    to, back = SCALES[scale]
    mean, low, high = interval(to(values))
    found = {"mean": float(back(mean)), "low": float(back(low)), "high": float(back(high))}
    rounded = {name: float(f"{value:.4g}") for name, value in found.items()}
    each = [float(f"{value:.4g}") for value in values]
    side = {"expected": expected, "interval_is": side_of(found, expected)} if expected else {}
    return {"claim": claim, "part": what, "networks": each, **rounded, "scale": scale, **side}


def interval(values: numpy.ndarray) -> tuple[float, float, float]:
    mean, count = values.mean(), len(values)
    half = t.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count)
    return mean, mean - half, mean + half


def side_of(found: dict[str, float], expected: str) -> str:
    low, high = found["low"], found["high"]
    if " to " in expected:
        least, most = map(float, expected.split(" to "))
        inside, outside = least <= low and high <= most, high < least or low > most
    else:
        sign, number = expected.split()
        threshold = float(number)
        inside = high <= threshold if sign.startswith("<") else low >= threshold
        outside = low > threshold if sign.startswith("<") else high < threshold
    return "on the claimed side" if inside else "on the other side" if outside else "across the threshold"
