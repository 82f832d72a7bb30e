"""A claim is declared with its criteria before a run, and decided from the run's data by them alone.

A criterion compares one measured quantity with a threshold. The quantity is a number, compared as it is, or one number
for each member (a seed, a unit, an image). Over members it

    passes              if their mean passes and at least two thirds of them do,
    is inconclusive     if the 95 % interval of the mean (Student's t) straddles the threshold,
    fails               otherwise.

Infinite members have a mean but no interval: then the members decide if they agree, and nobody if not. A member that is
not a number leaves the criterion inconclusive. An exact criterion knows no statistics: every member has to pass.

A claim is inconclusive where the preset or the number of seeds cannot decide it, or where a control fails, since a test
whose control misbehaves says nothing; not reproduced if a criterion fails; inconclusive if one is; else reproduced.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]
Relation = Literal["<=", ">=", "<", ">", "==", "within"]
Interval = tuple[float, float]

PAPERS = {
    "A": "Li, Papyan: Residual Alignment: Uncovering the Mechanisms of Residual Networks",
    "B": "Li, Jiao, Han, Weissman: Demystifying ResNet",
    "C": "Oyedotun, Al Ismaeil, Aouada: Training very deep neural networks: Rethinking the role of skip connections",
    "D": "Rothauge, Yao, Hu, Mahoney: Residual Networks as Nonlinear Systems: Stability Analysis using Linearization",
}
PRESETS = ("quick", "full", "paper")  # that can decide a claim; smoke decides nothing
CONFIDENCE = 0.95
TWO_THIRDS = 2 / 3
LISTED = 20  # members that are kept one by one in what was measured

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_WORDS = {"<=": "at most", ">=": "at least", "<": "below", ">": "above", "==": "exactly", "within": "within"}


@dataclass(frozen=True)
class Outcome:
    """A criterion after a run."""

    quantity: str
    relation: Relation
    threshold: float | Interval
    passed: bool | None  # None: inconclusive, for this reason
    mean: float | None = None
    worst: float | None = None  # the member farthest on the failing side
    n: int = 0
    passing: int = 0  # members that pass
    interval: Interval | None = None  # of the mean, at 95 %
    reason: str = ""
    control: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {key: _written(value) for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        return cls(**{key: _tuple(_read(value)) for key, value in content.items()})


@dataclass(frozen=True)
class Criterion:
    quantity: str  # its name in the evidence
    relation: Relation
    threshold: float | Interval  # both ends belong to a range
    share: float = TWO_THIRDS  # of the members, that have to pass
    exact: bool = False  # every member has to pass, whatever their mean

    def __post_init__(self) -> None:
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

    def judge(self, evidence: Mapping[str, Any]) -> Outcome:
        unknown = Outcome(self.quantity, self.relation, self.threshold, None)
        if evidence.get(self.quantity) is None:
            return replace(unknown, reason=f"{self.quantity}: not measured")
        try:
            given = _numbers(evidence[self.quantity])
        except (TypeError, ValueError):
            return replace(unknown, reason=f"{self.quantity}: {evidence[self.quantity]!r} is not a number")
        members = given[~numpy.isnan(given)].ravel()
        if not members.size:
            return replace(
                unknown, reason=f"{self.quantity}: {'not a number' if given.size else 'no members'}", n=given.size
            )
        outcome = replace(
            unknown,
            mean=_mean(members),
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
        mean, n, passing = _mean(members), members.size, outcome.passing
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
        low, high = interval = _interval(members)
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


@dataclass(frozen=True)
class Decision:
    """A claim after a run: one entry of claims.json."""

    id: str
    paper: str  # authors and title
    claim: str
    statistic: str
    expected: str
    measured: dict[str, Any]
    verdict: Verdict
    preset: str
    reason: str = ""  # of an inconclusive verdict, or of one that is not the paper's
    outcomes: tuple[Outcome, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What is not finite as "inf", "-inf" or "nan": a JSON document has no numbers for them."""
        written = {name: _written(getattr(self, name)) for name in self.__dataclass_fields__ if name != "outcomes"}
        return {**written, "outcomes": [outcome.to_dict() for outcome in self.outcomes]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        outcomes = tuple(Outcome.from_dict(outcome) for outcome in content.get("outcomes", ()))
        return cls(**{**content, "measured": _read(content["measured"]), "outcomes": outcomes})


@dataclass(frozen=True)
class Claim:
    id: str  # D3
    paper: str  # D
    text: str
    statistic: str
    study: str  # that decides it: D.law
    criteria: tuple[Criterion, ...]
    controls: tuple[Criterion, ...] = ()
    seeds: int = 1  # networks of its own that it takes, where the evidence counts its "seeds"; a given one has none
    presets: tuple[str, ...] = PRESETS  # that can decide it
    note: str = ""  # errata, and what is known
    ours: bool = False  # not made by the paper, but about it

    def __post_init__(self) -> None:
        if self.paper not in PAPERS or not re.fullmatch(rf"{self.paper}[1-9]\d*", self.id):
            raise ValueError(f"{self.id}: a claim is named after its paper, one of {', '.join(PAPERS)}, and numbered")
        if not re.fullmatch(rf"{self.paper}\.[a-z0-9]+", self.study):
            raise ValueError(f"{self.id}: {self.study!r} is no study of paper {self.paper}")
        if not self.presets or set(self.presets) - set(PRESETS):
            raise ValueError(f"{self.id}: the presets that decide are among {PRESETS}, not {self.presets}")
        if not self.criteria and not self.note:
            raise ValueError(f"{self.id}: a claim without criteria says in its note why it is only reported")
        if self.seeds < 1:
            raise ValueError(f"{self.id}: at least one seed, not {self.seeds}")

    @property
    def title(self) -> str:
        return f"ours, on {PAPERS[self.paper]}" if self.ours else PAPERS[self.paper]

    @property
    def expected(self) -> str:
        """The rule in words."""
        rules = [str(criterion) for criterion in self.criteria] or ["reported, not judged"]
        return "; ".join([*rules, *(f"control: {control}" for control in self.controls)])

    def decide(self, evidence: Mapping[str, Any], preset: str, *, reason: str | None = None) -> Decision:
        """reason: why the evidence cannot decide it, if the study knows (it was not run, its data are missing)."""
        outcomes = (
            *(criterion.judge(evidence) for criterion in self.criteria),
            *(replace(control.judge(evidence), control=True) for control in self.controls),
        )
        verdict, why = self._verdict(evidence, preset, outcomes)
        if reason:
            verdict, why = "inconclusive", reason
        measured = {str(name): _short(value) for name, value in evidence.items()}
        return Decision(
            self.id, self.title, self.text, self.statistic, self.expected, measured, verdict, preset, why, outcomes
        )

    def _verdict(self, evidence: Mapping[str, Any], preset: str, outcomes: Sequence[Outcome]) -> tuple[Verdict, str]:
        if not self.criteria:
            return "inconclusive", f"reported, not judged: {self.note}"
        if preset not in self.presets:
            return "inconclusive", f"the preset {preset} cannot decide it: needs {' or '.join(self.presets)}"
        seeds = evidence.get("seeds")
        if seeds is not None and seeds < self.seeds:
            return "inconclusive", f"{seeds} of the {self.seeds} seeds that it takes"
        failed = [outcome for outcome in outcomes if outcome.passed is False]
        if any(outcome.control for outcome in failed):
            return "inconclusive", "; ".join(f"the control fails: {_found(o)}" for o in failed if o.control)
        if failed:
            return "not reproduced", "; ".join(map(_found, failed))
        unknown = [outcome.reason for outcome in outcomes if outcome.passed is None]
        return ("inconclusive", "; ".join(unknown)) if unknown else ("reproduced", "")


def _found(outcome: Outcome) -> str:
    """What was found in place of what was expected."""
    expected = str(Criterion(outcome.quantity, outcome.relation, outcome.threshold))
    if outcome.n == 1:
        return f"{expected}, found {outcome.mean:.4g}"
    return f"{expected}, found a mean of {outcome.mean:.4g}, and {outcome.passing} of {outcome.n} members pass"


# -- numbers


def _python(value: Any) -> Any:
    """The numbers of a tensor (on any device), a NumPy or an xarray array."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    return value.tolist() if hasattr(value, "tolist") else value


def _numbers(value: Any) -> numpy.ndarray:
    """As float64, of whatever library, in no dimension or one; None is not a number."""
    value = _python(value)
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError("a number or a sequence of numbers")
    array = numpy.array(value, dtype=numpy.float64)
    return array if array.ndim == 0 else array.ravel()


def _mean(members: numpy.ndarray) -> float:
    with numpy.errstate(invalid="ignore"):  # infinities of both signs
        mean = float(members.mean())
    # Rounding must not carry the mean of equal members over a threshold that they meet.
    return mean if math.isnan(mean) else min(max(mean, float(members.min())), float(members.max()))


def _interval(members: numpy.ndarray) -> Interval:
    """Of the mean of two or more finite members, by Student's t."""
    from scipy.stats import t

    mean = _mean(members)
    error = math.sqrt(float(((members - mean) ** 2).sum()) / (members.size * (members.size - 1)))
    half = float(t.ppf((1 + CONFIDENCE) / 2, members.size - 1)) * error
    return mean - half, mean + half


def _short(value: Any) -> Any:
    """Many members by their mean, smallest and largest; all else as it is, in Python's own types."""
    value = _python(value)
    if isinstance(value, Mapping):
        return {str(key): _short(part) for key, part in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    try:
        members = _numbers(value)
    except (TypeError, ValueError):
        return [_short(part) for part in value]
    if members.size <= LISTED:
        return [_short(part) for part in value]
    numbers = members[~numpy.isnan(members)]
    short: dict[str, Any] = {"n": members.size}
    if numbers.size:
        short = {"mean": _mean(numbers), "min": float(numbers.min()), "max": float(numbers.max()), **short}
    missing = members.size - numbers.size
    return {**short, "not a number": missing} if missing else short


def _written(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _written(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _read(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_read(part) for part in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
