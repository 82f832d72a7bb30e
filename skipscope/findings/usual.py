"""Which numbers are usual, for units and networks of each kind.

`usual_ranges.json` comes from `scripts/usual_ranges.py`: the numbers below, of models of several libraries with their
usual initial weights and of trained networks, each model with the same weight however many units it has. A range is the
middle 90 % of them. The kind of a unit is what its branch does (attention, convolution, linear); that of a network is
the kind of most of its units.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

FILE = "usual_ranges.json"


@dataclass(frozen=True)
class Range:
    """Of a quantity over models of one kind, and how many models these are."""

    low: float
    middle: float
    high: float
    models: int

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def beyond(self, value: float) -> float:
        """How many times a positive value is above the range, or below it; 1 inside."""
        if not value > 0:
            return math.inf if self.low > 0 else 1.0
        above = value / self.high if self.high > 0 else math.inf
        below = self.low / value
        return max(1.0, above, below)


@functools.cache
def ranges() -> dict[str, dict[str, Range]]:
    """By quantity and kind."""
    return {
        quantity: {kind: Range(**found) for kind, found in kinds.items()}
        for quantity, kinds in _stored()["ranges"].items()
    }


@functools.cache
def _stored() -> dict[str, Any]:
    text = files("skipscope.findings").joinpath(FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def usual(quantity: str, kind: str) -> Range | None:
    """None where no models of that kind were measured."""
    return ranges().get(quantity, {}).get(kind)
