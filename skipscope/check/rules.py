"""From signals to sentences: each rule has one threshold, and a network is expected to fail where one is broken.

The thresholds come from one half of the networks of `benchmarks/check.py` and from published ones that are known to
train (its `fit`, rounded to two digits), and are right as often on the other half as `docs/check.md` says: small
networks on the digits, trained by gradient descent with momentum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

DEVIATIONS = 2.0  # standard errors of a signal from a threshold that it is near to


@dataclass(frozen=True)
class Rule:
    """Broken where the signal is above (or below) the threshold. factor: shown as ten to its power."""

    name: str
    signal: str
    above: bool
    threshold: float
    factor: bool
    question: str  # that it answers
    found: str  # when it is broken, with {value} and {threshold}

    def broken(self, signals: Mapping[str, float]) -> bool:
        """A signal that cannot be measured breaks nothing."""
        return self.beyond(signals[self.signal])

    def beyond(self, value: float) -> bool:
        return not math.isnan(value) and (value > self.threshold if self.above else value < self.threshold)

    def near(self, value: float, error: float) -> bool:
        """Whether other samples might put the signal on the other side."""
        return abs(value - self.threshold) <= DEVIATIONS * error

    def shown(self, value: float) -> str:
        return "-" if math.isnan(value) else f"{10**value if self.factor else value:.3g}"

    def sentence(self, value: float) -> str:
        return self.found.format(value=self.shown(value), threshold=self.shown(self.threshold))


RULES = (
    Rule(
        "states grow",
        "growth",
        True,
        2.0,
        True,
        "how much larger is the last state than the first?",
        "The states grow: the last is {value} times as large as the first (threshold {threshold}). The first steps "
        "throw the weights out of range.",
    ),
    Rule(
        "states vanish",
        "growth",
        False,
        -2.0,
        True,
        "how much larger is the last state than the first?",
        "The states vanish: the last is {value} times as large as the first (threshold {threshold}).",
    ),
    Rule(
        "representation collapses",
        "rank",
        False,
        0.19,
        False,
        "in how many directions do samples differ at the last layer, over those at the first?",
        "Information does not survive: samples differ at the last layer in {value} times as many directions as at the "
        "first (effective rank; threshold {threshold}).",
    ),
    Rule(
        "gradients explode",
        "gradient_growth",
        True,
        4.2,
        True,
        "how much larger do gradients come back?",
        "Gradients explode: at the first layer they are {value} times as large as at the last (threshold {threshold}).",
    ),
    Rule(
        "gradients vanish",
        "gradient_growth",
        False,
        -3.4,
        True,
        "how much larger do gradients come back?",
        "Gradients vanish: at the first layer they are {value} times as large as at the last (threshold {threshold}).",
    ),
    Rule(
        "gradients are of one kind",
        "gradient_rank",
        False,
        0.27,
        False,
        "in how many directions do gradients come back, over those that were sent?",
        "Gradients that come back point the same way: their effective rank is {value} times what was sent (threshold "
        "{threshold}). The Jacobian from the first to the last layer is badly conditioned.",
    ),
    Rule(
        "loss starts high",
        "loss",
        True,
        100.0,
        False,
        "how large is the loss before training, over that of a guess?",
        "The loss starts at {value} times that of a guess (threshold {threshold}).",
    ),
)
