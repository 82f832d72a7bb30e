"""A criterion compares one measured quantity with a threshold.

The quantity is a number, which is compared as it is, one number per network, or an estimate that has an interval
(`skipscope.papers.kit.estimates`). Over networks it

    passes              if the 95 % interval lies on the claimed side of the threshold,
    fails               if the interval lies on the other side,
    is inconclusive     otherwise, with the number of networks that would decide it if they spread as these do.

"Within" passes if the interval lies inside the range and fails if it lies outside. Where k criteria are joined, one of
them fails by its interval at 1 - .05 / k. Some infinite values leave no interval: then the networks decide if they
agree, and nobody if not. A value that is not a number leaves the criterion inconclusive. An exact criterion knows no
statistics: every network, or every draw, has to pass.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy

from skipscope.papers.kit.estimates import Estimate, estimated
from skipscope.papers.kit.quantities import Quantity
from skipscope.runs.decisions import CONFIDENCE, Interval, Outcome, Relation, mean_of

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_WORDS = {"<=": "at most", ">=": "at least", "<": "below", ">": "above", "==": "exactly", "within": "within"}


@dataclass(frozen=True)
class Criterion:
    quantity: Quantity
    relation: Relation
    threshold: float | Interval  # both ends belong to a range
    every: bool = False  # each network or draw has to pass, whatever their mean
    floor: Quantity | None = None  # takes the threshold's place where it is larger

    def __post_init__(self) -> None:
        if not isinstance(self.quantity, Quantity):
            raise TypeError(f"a criterion is about a Quantity, not {self.quantity!r}")
        if self.relation not in get_args(Relation):
            raise ValueError(f"{self.quantity}: the relation is one of {get_args(Relation)}, not {self.relation!r}")
        if (self.relation == "within") != isinstance(self.threshold, tuple):
            raise ValueError(f"{self.quantity}: a range belongs to 'within', a number to every other relation")
        if self.ends[0] > self.ends[-1] or any(math.isnan(end) for end in self.ends):
            raise ValueError(f"{self.quantity}: nothing is {self}")
        if self.floor is not None and self.relation != "<=":
            raise ValueError(f"{self.quantity}: a floor belongs to 'at most'")

    @property
    def ends(self) -> tuple[float, ...]:
        return self.threshold if isinstance(self.threshold, tuple) else (self.threshold,)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return (self.quantity,) if self.floor is None else (self.quantity, self.floor)

    def judge(self, values: Mapping[Quantity, Any], conditions: int = 1) -> Outcome:
        """conditions: that are joined with this one."""
        unknown = Outcome(self.quantity.name, self.relation, self.threshold, None)
        for quantity in self.quantities:
            if values.get(quantity) is None:
                return replace(unknown, reason=f"{quantity}: not measured")
        try:
            found = estimated(values[self.quantity], self.quantity.scale)
        except (TypeError, ValueError) as error:
            return replace(unknown, reason=f"{self.quantity}: {values[self.quantity]!r} is not a number ({error})")
        if self.floor is not None:
            floor = estimated(values[self.floor], self.floor.scale).value
            above = Criterion(self.quantity, self.relation, max(self.ends[0], floor), self.every)
            return above.judge(values, conditions)
        return self._judged(found, conditions, unknown)

    def _judged(self, found: Estimate, conditions: int, unknown: Outcome) -> Outcome:
        if not found.n:
            return replace(unknown, reason=f"{self.quantity}: no networks")
        members = numpy.array(found.members or [found.value])
        missing = int(numpy.isnan(members).sum())
        if missing == members.size:
            return replace(unknown, reason=f"{self.quantity}: not a number", n=found.n)
        numbers = members[~numpy.isnan(members)]
        outcome = replace(
            unknown,
            worst=float(numbers[numpy.argmax(self._excess(numbers))]),
            n=found.n,
            passing=int(self._passes(numbers).sum()),
            scale=self.quantity.scale,
        )
        if missing:
            return replace(
                outcome,
                mean=mean_of(numbers),
                reason=f"{self.quantity}: {missing} of {found.n} values are not a number",
            )
        outcome = replace(outcome, mean=found.value)
        if self.every or found.n == 1:
            return replace(outcome, passed=outcome.passing == members.size)
        return self._by_interval(found, conditions, outcome)

    def _by_interval(self, found: Estimate, conditions: int, outcome: Outcome) -> Outcome:
        low, high = interval = found.interval()
        if found.infinite:
            if outcome.passing in (0, found.n):
                return replace(outcome, passed=outcome.passing == found.n)
            return replace(
                outcome,
                reason=f"{self.quantity}: {found.infinite} of {found.n} values are infinite on its scale, so that they "
                f"have no interval, and {outcome.passing} of {found.n} pass",
            )
        outcome = replace(outcome, interval=interval)
        if self._claimed(low, high):
            return replace(outcome, passed=True)
        if self._opposite(*found.interval(1 - (1 - CONFIDENCE) / conditions)):
            return replace(outcome, passed=False)
        needed = found.needed(self.ends)
        more = f"; {needed} networks would decide it at this spread" if needed else ""
        return replace(
            outcome,
            needed=needed,
            reason=f"{self.quantity}: the 95 % interval, {low:.4g} to {high:.4g}, is on both sides of "
            f"{' or '.join(f'{end:g}' for end in self.ends)}{more}",
        )

    def _claimed(self, low: float, high: float) -> bool:
        """Whether the whole interval is on the claimed side."""
        return bool(self._passes(numpy.array([low, high])).all())

    def _opposite(self, low: float, high: float) -> bool:
        """Whether the whole interval is on the other side; not where a range lies inside the interval."""
        if self.relation == "within":
            return high < self.ends[0] or low > self.ends[1]
        return not bool(self._passes(numpy.array([low, high])).any())

    def _passes(self, members: numpy.ndarray) -> numpy.ndarray:
        if self.relation == "within":
            return numpy.asarray((members >= self.ends[0]) & (members <= self.ends[1]))
        return numpy.asarray(_COMPARE[self.relation](members, self.threshold))

    def _excess(self, members: numpy.ndarray) -> numpy.ndarray:
        """What grows towards the failing side."""
        if self.relation == "within":
            return numpy.maximum(self.ends[0] - members, members - self.ends[1])
        if self.relation == "==":
            return numpy.asarray(abs(members - self.threshold))
        return members if self.relation in ("<=", "<") else -members

    def __str__(self) -> str:
        text = f"{self.quantity} {_WORDS[self.relation]} {' to '.join(f'{end:.6g}' for end in self.ends)}"
        if self.floor is not None:
            text += f", or {self.floor} where that is larger"
        return f"{text} (each)" if self.every and self.relation != "==" else text
