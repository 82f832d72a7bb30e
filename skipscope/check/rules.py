"""From signals to sentences: each rule has a threshold for each kind of optimiser, and a network is expected to fail
where one is broken.

The thresholds come from `python -m benchmarks.unseen fit`: those with the largest balanced accuracy on its calibration
networks that no published network breaks. How often they are right about other networks is in
`docs/check-accuracy.md`. Adam rescales the step of every weight, and so trains networks whose states or gradients are
far from the size of 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from skipscope.optimisers import kind_of
from skipscope.wording import without_one_times

DEVIATIONS = 2.0  # standard errors of a signal from a threshold that it is near to


# What each signal answers.
QUESTIONS = {
    "growth": "how much larger is the last state than the first?",
    "rank": "in how many directions do samples differ at the last layer, over those at the first?",
    "gradient_growth": "how much larger do gradients come back?",
    "gradient_rank": "in how many directions do gradients come back, over those that were sent?",
    "shattering": "how far does a small step towards another sample go, over the whole way, and in lost directions?",
    "loss": "how large is the loss before training, over that of a guess?",
}
SIGNALS_IN_WORDS = {
    "growth": "the last state is {} times as large as the first",
    "rank": "samples differ in {} times as many directions at the last layer as at the first",
    "gradient_growth": "gradients come back {} times as large",
    "gradient_rank": "gradients come back in {} times as many directions as were sent",
    "shattering": "small steps towards other samples go {} times as far as they should, weighted by lost directions",
    "loss": "the loss starts at {} times that of a guess",
}
LOGARITHMS = ("growth", "gradient_growth", "shattering")  # shown as ten to their power


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

    def in_words(self, value: float) -> str:
        """What the signal says, whether the rule is broken or not."""
        return without_one_times(SIGNALS_IN_WORDS[self.signal].format(self.shown(value)))

    def shown(self, value: float) -> str:
        return "-" if math.isnan(value) else f"{self.plain(value):.3g}"

    def plain(self, value: float) -> float:
        """A value of the signal, or its threshold, as a factor in place of a logarithm."""
        return float(10**value if self.signal in LOGARITHMS else value)

    def sentence(self, value: float) -> str:
        return self.found.format(value=self.shown(value), threshold=self.shown(self.threshold))


# The name of a rule, its signal, whether it is broken above the threshold or below, the thresholds by optimiser, and
# what is said where it is broken. The rules of one signal lie one after another.
_RULES: tuple[tuple[str, str, bool, Mapping[str, float], str], ...] = (
    (
        "states grow",
        "growth",
        True,
        {"sgd": 2.1, "adam": 4.8},
        "The states grow: the last is {value} times as large as the first (threshold {threshold}). The first steps "
        "throw the weights out of range.",
    ),
    (
        "states vanish",
        "growth",
        False,
        {"sgd": -2.1, "adam": -2.7},
        "The states vanish: the last is {value} times as large as the first (threshold {threshold}).",
    ),
    (
        "representation collapses",
        "rank",
        False,
        {"sgd": 0.16, "adam": 0.095},
        "Information does not survive: samples differ at the last layer in {value} times as many directions as at the "
        "first (effective rank; threshold {threshold}).",
    ),
    (
        "gradients explode",
        "gradient_growth",
        True,
        {"sgd": 3.6, "adam": 4.4},
        "Gradients explode: at the first layer they are {value} times as large as at the last (threshold {threshold}).",
    ),
    (
        "gradients vanish",
        "gradient_growth",
        False,
        {"sgd": -2.6, "adam": -9.3},
        "Gradients vanish: at the first layer they are {value} times as large as at the last (threshold {threshold}).",
    ),
    (
        "gradients are of one kind",
        "gradient_rank",
        False,
        {"sgd": 0.15, "adam": 0.17},
        "Gradients that come back point the same way: their effective rank is {value} times what was sent (threshold "
        "{threshold}). The Jacobian from the first to the last layer is badly conditioned.",
    ),
    (
        "gradients are shattered",
        "shattering",
        True,
        {"sgd": 1.4, "adam": 1.7},
        "Gradients are shattered: those of different samples have little in common, and come back in few directions. "
        "Small steps towards another sample go {value} times as far as they should, weighted by lost directions "
        "(threshold {threshold}).",
    ),
    (
        "loss starts high",
        "loss",
        True,
        {"sgd": 400.0, "adam": 55000.0},
        "The loss starts at {value} times that of a guess (threshold {threshold}).",
    ),
)


def rules_for(optimiser: str) -> tuple[Rule, ...]:
    kind = kind_of(optimiser)
    return tuple(
        Rule(name, signal, above, thresholds[kind], found)
        for name, signal, above, thresholds, found in _RULES
        if kind in thresholds
    )


def broken(signals: Mapping[str, float], optimiser: str) -> tuple[str, ...]:
    """The names of the rules that these signals break."""
    return tuple(rule.name for rule in rules_for(optimiser) if rule.broken(signals))


def by_signal(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    return {signal: list(each) for signal, each in groupby(rules, lambda rule: rule.signal)}
