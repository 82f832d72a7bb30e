"""From signals to sentences: each rule has one threshold, and a network is expected to fail where one is broken.

The thresholds come from one half of the networks of `benchmarks/check.py` and from published ones that are known to
train (its `fit`, rounded to two digits), and are right as often on the other half as `docs/check.md` says: small
networks on the digits, trained by gradient descent with momentum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

DEVIATIONS = 2.0  # standard errors of a signal from a threshold that it is near to


# What each signal answers.
QUESTIONS = {
    "growth": "how much larger is the last state than the first?",
    "rank": "in how many directions do samples differ at the last layer, over those at the first?",
    "gradient_growth": "how much larger do gradients come back?",
    "gradient_rank": "in how many directions do gradients come back, over those that were sent?",
    "loss": "how large is the loss before training, over that of a guess?",
}
SIGNALS_IN_WORDS = {
    "growth": "the last state is {} times as large as the first",
    "rank": "samples differ in {} times as many directions at the last layer as at the first",
    "gradient_growth": "gradients come back {} times as large",
    "gradient_rank": "gradients come back in {} times as many directions as were sent",
    "loss": "the loss starts at {} times that of a guess",
}
LOGARITHMS = ("growth", "gradient_growth")  # shown as ten to their power


@dataclass(frozen=True)
class Rule:
    """Broken where the signal is above (or below) the threshold."""

    name: str
    signal: str
    above: bool
    threshold: float
    found: str  # when it is broken, with {value} and {threshold}

    @property
    def question(self) -> str:
        return QUESTIONS[self.signal]

    @property
    def limit(self) -> str:
        return f"{'at most' if self.above else 'at least'} {self.shown(self.threshold)}"

    def broken(self, signals: Mapping[str, float]) -> bool:
        """A signal that cannot be measured breaks nothing."""
        return self.beyond(signals[self.signal])

    def beyond(self, value: float) -> bool:
        return not math.isnan(value) and (value > self.threshold if self.above else value < self.threshold)

    def near(self, value: float, error: float) -> bool:
        """Whether other samples might put the signal on the other side."""
        return abs(value - self.threshold) <= DEVIATIONS * error

    def room(self, value: float) -> float:
        """How far a signal is from the threshold: 0 there, 1 where the network changes nothing. A signal that cannot
        be measured has all the room."""
        if math.isnan(value):
            return 1.0
        if self.signal in LOGARITHMS:
            return min(1 - value / self.threshold, 1.0)
        if self.above:
            return min(1 - math.log(max(value, 1.0)) / math.log(self.threshold), 1.0)
        return min((value - self.threshold) / (1 - self.threshold), 1.0)

    def shown(self, value: float) -> str:
        return "-" if math.isnan(value) else f"{self.plain(value):.3g}"

    def plain(self, value: float) -> float:
        """A value of the signal, or its threshold, as a factor in place of a logarithm."""
        return float(10**value if self.signal in LOGARITHMS else value)

    def sentence(self, value: float) -> str:
        return self.found.format(value=self.shown(value), threshold=self.shown(self.threshold))


RULES = (
    Rule(
        "states grow",
        "growth",
        True,
        2.0,
        "The states grow: the last is {value} times as large as the first (threshold {threshold}). The first steps "
        "throw the weights out of range.",
    ),
    Rule(
        "states vanish",
        "growth",
        False,
        -2.0,
        "The states vanish: the last is {value} times as large as the first (threshold {threshold}).",
    ),
    Rule(
        "representation collapses",
        "rank",
        False,
        0.19,
        "Information does not survive: samples differ at the last layer in {value} times as many directions as at the "
        "first (effective rank; threshold {threshold}).",
    ),
    Rule(
        "gradients explode",
        "gradient_growth",
        True,
        4.2,
        "Gradients explode: at the first layer they are {value} times as large as at the last (threshold {threshold}).",
    ),
    Rule(
        "gradients vanish",
        "gradient_growth",
        False,
        -3.4,
        "Gradients vanish: at the first layer they are {value} times as large as at the last (threshold {threshold}).",
    ),
    Rule(
        "gradients are of one kind",
        "gradient_rank",
        False,
        0.27,
        "Gradients that come back point the same way: their effective rank is {value} times what was sent (threshold "
        "{threshold}). The Jacobian from the first to the last layer is badly conditioned.",
    ),
    Rule(
        "loss starts high",
        "loss",
        True,
        100.0,
        "The loss starts at {value} times that of a guess (threshold {threshold}).",
    ),
)


def by_signal() -> dict[str, list[Rule]]:
    """The rules of one signal lie one after another."""
    return {signal: list(rules) for signal, rules in groupby(RULES, lambda rule: rule.signal)}
