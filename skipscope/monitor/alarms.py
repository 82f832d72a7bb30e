"""From what was recorded to alarms, in words.

A signal is one number of the last look, with the unit that it is of; a rule has a threshold on one signal, and rings
where the signal has been beyond it at `patience` looks one after another. Each rule rings once.

growth              the largest growth of a state's size, over its largest in the first half of the steps so far: states
                    of a network that trains grow too, but not by much while the number of steps doubles
gradient_growth     the gradient's size at the first unit over that at the last
branch              the smallest of what differs between samples in a branch (over the skip), over the largest that it
                    was in that unit before: 0 for a unit that has died
spread              the smallest of what differs between samples in a state, over the state's size
sharpness           the largest eigenvalue of the Hessian over what the rate can bear (2 / rate); asked again, with the
                    last eigenvalue, whenever the rate changes

What rings after numbers that are not finite, states that grow, a rate that is too large, or a loss far above its first
value, probably follows from these, and says so: its own remedies would point the wrong way.

The thresholds were found on small networks that train and that fail, and tried on others: `benchmarks/alarms.py`,
docs/monitor.md. Looks before batch norms have seen enough data do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from skipscope.findings import Finding
from skipscope.monitor.recording import Recorded
from skipscope.wording import number

if TYPE_CHECKING:
    import xarray

NOT_FINITE = "not finite"
CAUSES = (NOT_FINITE, "states grow", "too sharp for the rate")
CONSEQUENCES = ("gradients vanish", "a unit died", "samples become alike")
FAR_ABOVE = 10.0  # times its first value: a loss that has exploded
SMALLEST = 1e-300  # in place of zero, of which there is no logarithm
NOTHING = -100.0  # a power of ten below which a ratio is that of a zero
ALARMS = "alarms"  # the name and the attribute `measure` of their dataset


class Signal(NamedTuple):
    """unit: that has the value; empty where it is of the whole network."""

    value: float
    unit: str = ""


@dataclass(frozen=True)
class Rule:
    """Broken where the signal is above (or below) the threshold."""

    name: str
    signal: str
    part: str  # the measure whose looks are counted
    above: bool
    threshold: float
    found: str  # with {value}, {threshold} and {unit}
    remedies: tuple[str, ...]
    logarithm: bool = True  # whether signal and threshold are powers of ten
    patience: int = 2  # looks one after another at which it is broken before it rings

    def beyond(self, value: float) -> bool:
        return not math.isnan(value) and (value > self.threshold if self.above else value < self.threshold)

    def plain(self, value: float) -> float:
        if not self.logarithm:
            return value
        return 0.0 if value < NOTHING else float(10.0 ** min(value, 300.0))

    def finding(self, signal: Signal) -> Finding:
        value, threshold = self.plain(signal.value), self.plain(self.threshold)
        words = {"value": number(value), "threshold": number(threshold), "unit": signal.unit}
        return Finding(
            self.name,
            self.found.format(**words),
            self.remedies,
            value,
            threshold,
            unit=signal.unit,
            numbers={self.signal: value, "threshold": threshold},
            measure=ALARMS,
        )


RULES = (
    Rule(
        "states grow",
        "growth",
        "sizes",
        True,
        1.0,
        "States grow: what enters {unit} is {value} times as large as it was in the first half of the training so far "
        "(threshold {threshold}).",
        ("a smaller rate", "a norm on the trunk or at the end of each branch", "clipped gradients"),
    ),
    Rule(
        "gradients vanish",
        "gradient_growth",
        "sizes",
        False,
        -3.4,
        "Gradients vanish: at {unit}, the first unit, they are {value} times as large as at the last (threshold "
        "{threshold}).",
        ("skip connections", "a norm", "an initialisation that keeps the size of states"),
    ),
    Rule(
        "a unit died",
        "branch",
        "sizes",
        False,
        -3.0,
        "The unit {unit} died: what its branch makes of different samples differs {value} times as much as it did "
        "(threshold {threshold}); it adds the same to all of them.",
        ("a smaller rate", "less weight decay", "an activation that passes something on below zero"),
    ),
    Rule(
        "samples become alike",
        "spread",
        "sizes",
        False,
        -2.0,
        "The stream collapses: at {unit} samples differ by {value} of the size of their states (threshold "
        "{threshold}).",
        ("a smaller rate", "less weight decay", "a norm on the trunk"),
    ),
    Rule(
        "too sharp for the rate",
        "sharpness",
        "sharpness",
        True,
        1.5,
        "The loss is too sharp for the rate: the largest eigenvalue of its Hessian is {value} times what the rate can "
        "bear, 2 / rate (threshold {threshold}). Steps along it grow.",
        ("a smaller rate", "a longer warm-up"),
        logarithm=False,
        patience=1,
    ),
)


@dataclass(frozen=True)
class Alarm:
    """What rang, and at which step of the training."""

    step: int
    finding: Finding

    @property
    def name(self) -> str:
        return self.finding.name

    def __str__(self) -> str:
        return f"step {self.step}: {self.finding.told}"


class Judge:
    """The rules, with what they have seen."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self.rules = rules
        self.rung: dict[str, Alarm] = {}
        self._broken: dict[str, int] = {}  # looks one after another

    def judged(self, recorded: Mapping[str, Recorded], step: int) -> list[Alarm]:
        """The alarms of the look at this step."""
        new = [part for part, one in recorded.items() if one.steps and one.steps[-1] == step]
        found = [self._not_finite(recorded["sizes"], step)] if "sizes" in new else []
        signals = signals_of({part: recorded[part] for part in new})
        for rule in self.rules:
            if rule.part not in new or rule.signal not in signals:
                continue
            found.append(self._asked(rule, signals[rule.signal], step, recorded))
        return [alarm for alarm in found if alarm is not None]

    def _asked(self, rule: Rule, signal: Signal, step: int, recorded: Mapping[str, Recorded]) -> Alarm | None:
        self._broken[rule.name] = self._broken.get(rule.name, 0) + 1 if rule.beyond(signal.value) else 0
        if self._broken[rule.name] < rule.patience:
            return None
        finding, cause = rule.finding(signal), self._cause(recorded)
        if rule.name in CONSEQUENCES and cause:
            sentence = f"{finding.sentence} It probably follows from {cause}."
            finding = replace(finding, sentence=sentence, remedies=("a smaller rate",))
        return self._ring(step, finding)

    def _cause(self, recorded: Mapping[str, Recorded]) -> str:
        """What has gone wrong before, in words; empty where nothing is known."""
        for name in CAUSES:
            if name in self.rung:
                return f"what rang at step {self.rung[name].step} ({name})"
        losses = recorded["sizes"].columns.get("loss", []) if "sizes" in recorded else []
        first, last = (float(losses[0]), float(losses[-1])) if len(losses) else (math.nan, math.nan)
        return f"the loss, which was {number(first)} and is {number(last)}" if last > FAR_ABOVE * abs(first) else ""

    def at_rate(self, recorded: Mapping[str, Recorded], step: int, limit: float) -> list[Alarm]:
        """The alarms of a rate that can bear no more than `limit`, with the sharpness that was last seen."""
        if "sharpness" not in recorded or not recorded["sharpness"].columns["as_trained"][-1]:
            return []
        signal = sharpness_over(recorded["sharpness"], limit)
        found = [self._asked(rule, signal, step, recorded) for rule in self.rules if rule.signal == "sharpness"]
        return [alarm for alarm in found if alarm is not None]

    def loss_not_finite(self, step: int, loss: float) -> Alarm | None:
        sentence = f"The loss is not finite: it is {loss}."
        return self._ring(step, Finding(NOT_FINITE, sentence, ("a smaller rate", "a look at the data"), measure=ALARMS))

    def _not_finite(self, sizes: Recorded, step: int) -> Alarm | None:
        if bool(sizes.columns["finite"][-1]):
            return None
        sentence = "Numbers are not finite: states of the network are infinite or not a number."
        return self._ring(step, Finding(NOT_FINITE, sentence, ("a smaller rate",), measure=ALARMS))

    def forget(self, step: int) -> None:
        """What rang from this step on, which is counted again."""
        self.rung = {name: alarm for name, alarm in self.rung.items() if alarm.step < step}
        self._broken.clear()

    def _ring(self, step: int, finding: Finding) -> Alarm | None:
        if finding.name in self.rung:
            return None
        self.rung[finding.name] = alarm = Alarm(step, finding)
        return alarm


# -- signals


def signals_of(recorded: Mapping[str, Recorded]) -> dict[str, Signal]:
    """Of the last look of each part that is given."""
    found: dict[str, Signal] = {}
    if "sizes" in recorded:
        found |= _of_sizes(recorded["sizes"])
    if "sharpness" in recorded:
        found["sharpness"] = sharpness_over(recorded["sharpness"], float(recorded["sharpness"].columns["limit"][-1]))
    return found


def sharpness_over(sharpness: Recorded, limit: float) -> Signal:
    """The last one over what a rate can bear; a rate that is infinite can bear nothing."""
    value = float(sharpness.columns["value"][-1])
    if limit == 0:
        return Signal(math.copysign(math.inf, value) if value else math.nan)
    return Signal(value / limit)


def _of_sizes(sizes: Recorded) -> dict[str, Signal]:
    """None while batch norms have not settled, and where states are not finite."""
    settled, finite = (sizes.column(key).astype(bool) for key in ("settled", "finite"))
    counted = settled & finite
    if not counted[-1]:
        return {}
    units = sizes.labels("unit")
    state, gradient = (_log(sizes.column(key)[counted]) for key in ("state_rms", "gradient_rms"))
    branch, spread = (_log(sizes.column(key)[counted]) for key in ("branch_spread", "state_spread"))
    with numpy.errstate(invalid="ignore"):  # what is infinite twice has no ratio
        return {
            "growth": _growth(state, numpy.array(sizes.steps)[counted], units),
            "gradient_growth": Signal(float(gradient[-1, 0] - gradient[-1, -1]), units[0]),
            "branch": _smallest(branch[-1] - branch.max(0), units),
            "spread": _smallest(spread[-1], units),
        }


def _growth(state: numpy.ndarray, steps: numpy.ndarray, units: Sequence[str]) -> Signal:
    """state: logarithms, (looks, units)."""
    earlier = state[steps <= steps[-1] / 2]
    return _largest(state[-1] - earlier.max(0), units) if len(earlier) else Signal(math.nan)


def _log(values: numpy.ndarray) -> numpy.ndarray:
    return numpy.log10(numpy.maximum(values.astype(float), SMALLEST))


def _largest(values: numpy.ndarray, units: Sequence[str]) -> Signal:
    if numpy.isnan(values).all():
        return Signal(math.nan)
    place = int(numpy.nanargmax(values))
    return Signal(float(values[place]), units[place])


def _smallest(values: numpy.ndarray, units: Sequence[str]) -> Signal:
    found = _largest(-values, units)
    return Signal(-found.value, found.unit)


# -- as a dataset


def to_dataset(rung: Sequence[Alarm], **about: Any) -> xarray.Dataset:
    """One row per alarm, in the order in which they rang."""
    import xarray

    def texts(values: list[str]) -> numpy.ndarray:
        return numpy.array(values, dtype=object)

    findings = [alarm.finding for alarm in rung]
    columns: dict[str, Any] = {
        "name": texts([finding.name for finding in findings]),
        "sentence": texts([finding.sentence for finding in findings]),
        "remedies": texts(["; ".join(finding.remedies) for finding in findings]),
        "unit_of_alarm": texts([finding.unit for finding in findings]),
        "step": numpy.array([alarm.step for alarm in rung]),
        "value": numpy.array([math.nan if one.value is None else one.value for one in findings]),
        "threshold": numpy.array([math.nan if one.threshold is None else one.threshold for one in findings]),
    }
    return xarray.Dataset(
        {key: ("alarm", column) for key, column in columns.items()}, attrs={"measure": ALARMS, **about}
    )


def from_dataset(dataset: xarray.Dataset) -> list[Alarm]:
    found = []
    for place in range(dataset.sizes["alarm"]):
        one = {str(key): values.values[place] for key, values in dataset.data_vars.items()}
        remedies = tuple(filter(None, str(one["remedies"]).split("; ")))
        value, threshold = (None if math.isnan(one[key]) else float(one[key]) for key in ("value", "threshold"))
        finding = Finding(
            *(str(one["name"]), str(one["sentence"]), remedies, value, threshold),
            unit=str(one["unit_of_alarm"]),
            measure=ALARMS,
        )
        found.append(Alarm(int(one["step"]), finding))
    return found
