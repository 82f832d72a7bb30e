"""A criterion compares one measured quantity with a threshold.

The quantity is a number, compared as it is, or one number for each member (a seed, a unit, an image). Over members it

    passes              if their mean passes and at least two thirds of them do,
    is inconclusive     if the 95 % interval of the mean (Student's t) straddles the threshold,
    fails               otherwise.

Infinite members have a mean but no interval: then the members decide if they agree, and nobody if not. A member that is
not a number leaves the criterion inconclusive. An exact criterion knows no statistics: every member has to pass.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy

from skipscope.papers.kit.quantities import Quantity
from skipscope.runs.decisions import Interval, Outcome, Relation, interval_of, mean_of, numbers_of

TWO_THIRDS = 2 / 3

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
    share: float = TWO_THIRDS  # of the members, that have to pass
    exact: bool = False  # every member has to pass, whatever their mean

    def __post_init__(self) -> None:
        if not isinstance(self.quantity, Quantity):
            raise TypeError(f"a criterion is about a Quantity, not {self.quantity!r}")
        if self.relation not in get_args(Relation):
            raise ValueError(f"{self.quantity}: the relation is one of {get_args(Relation)}, not {self.relation!r}")
        if (self.relation == "within") != isinstance(self.threshold, tuple):
            raise ValueError(f"{self.quantity}: a range belongs to 'within', a number to every other relation")
        if self.ends[0] > self.ends[-1] or any(math.isnan(end) for end in self.ends):
            raise ValueError(f"{self.quantity}: nothing is {self}")
        if not 0 < self.share <= 1:
            raise ValueError(f"{self.quantity}: the share of members that pass is in (0, 1], not {self.share}")

    @property
    def ends(self) -> tuple[float, ...]:
        return self.threshold if isinstance(self.threshold, tuple) else (self.threshold,)

    def judge(self, evidence: Mapping[Quantity, Any]) -> Outcome:
        unknown = Outcome(self.quantity.name, self.relation, self.threshold, None)
        if evidence.get(self.quantity) is None:
            return replace(unknown, reason=f"{self.quantity}: not measured")
        try:
            given = numbers_of(evidence[self.quantity])
        except (TypeError, ValueError):
            return replace(unknown, reason=f"{self.quantity}: {evidence[self.quantity]!r} is not a number")
        members = given[~numpy.isnan(given)].ravel()
        if not members.size:
            return replace(
                unknown, reason=f"{self.quantity}: {'not a number' if given.size else 'no members'}", n=given.size
            )
        outcome = replace(
            unknown,
            mean=mean_of(members),
            worst=float(members[numpy.argmax(self._excess(members))]),
            n=given.size,
            passing=int(self._passes(members).sum()),
        )
        if members.size < given.size:
            missing = given.size - members.size
            return replace(outcome, reason=f"{self.quantity}: {missing} of {given.size} members are not a number")
        if self.exact or self.relation == "==" or given.ndim == 0:
            return replace(outcome, passed=outcome.passing == outcome.n)
        return self._over(members, outcome)

    def _over(self, members: numpy.ndarray, outcome: Outcome) -> Outcome:
        """The rule of means, shares and intervals."""
        mean, n, passing = mean_of(members), members.size, outcome.passing
        infinite = int(numpy.isinf(members).sum())
        if infinite:
            if passing in (0, n):
                return replace(outcome, passed=passing == n)
            return replace(
                outcome,
                reason=f"{self.quantity}: {infinite} of {n} members are infinite, so that their mean decides nothing, "
                f"and {passing} of {n} pass",
            )
        passed = bool(self._passes(numpy.array(mean))) and passing >= self.share * n - 1e-9
        if n == 1:
            return replace(outcome, passed=passed)
        low, high = interval = interval_of(members)
        outcome = replace(outcome, interval=interval)
        # A threshold that an end of the interval touches is not straddled where both ends are judged alike.
        if any(self._sides(low)[i] != self._sides(high)[i] for i in range(len(self.ends))):
            return replace(
                outcome,
                reason=f"{self.quantity}: the 95 % interval of the mean, {low:.4g} to {high:.4g}, straddles "
                f"{' or '.join(f'{end:g}' for end in self.ends)}",
            )
        return replace(outcome, passed=passed)

    def _sides(self, value: float) -> tuple[bool, ...]:
        """Whether a value passes each end of the threshold."""
        if self.relation == "within":
            return value >= self.ends[0], value <= self.ends[1]
        return (bool(_COMPARE[self.relation](value, self.threshold)),)

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
        if self.exact:
            return f"{text} (every member)"
        return text if self.share == TWO_THIRDS else f"{text} (at least {self.share:.0%} of the members)"
