"""A decided claim: what claims.json holds and every report can show, whoever declared the claim.

And its measured numbers, of one value or of many members: their mean and its interval, and how they are written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    import numpy

Relation = Literal["<=", ">=", "<", ">", "==", "within"]
# open: what decides it was not run. reported: nothing is claimed, so that there is nothing to judge.
Verdict = Literal["reproduced", "partly reproduced", "not reproduced", "inconclusive", "open", "reported"]
Interval = tuple[float, float]
CONFIDENCE = 0.95
EDITION = 2  # of the rules by which claims are judged
SCHEMA = 2  # of an entry of claims.json; 1: without parts and subjects
IN_FULL = 4  # members of a quantity that are written out one by one
LISTED = 20  # members that are kept one by one in what was measured


@dataclass(frozen=True)
class Outcome:
    """A criterion after a run."""

    quantity: str
    relation: Relation
    threshold: float | Interval
    passed: bool | None  # None: inconclusive, for this reason
    mean: float | None = None
    worst: float | None = None  # the network farthest on the failing side
    n: int = 0  # networks, or draws
    passing: int = 0  # of them; reported, not judged
    interval: Interval | None = None  # of the mean, at 95 %
    reason: str = ""
    control: bool = False
    scale: str = "plain"  # on which the interval was taken
    needed: int | None = None  # networks that would decide an inconclusive one

    def to_dict(self) -> dict[str, Any]:
        return {key: written_out(value) for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        found = {key: read_back(value) for key, value in content.items()}
        found.update({key: tuple(value) for key, value in found.items() if isinstance(value, list)})
        return cls(**found)


@dataclass(frozen=True)
class PartDecision:
    """One thing that a claim says, after a run."""

    name: str  # empty where the claim says one thing
    subject: str  # what it was judged on; empty where no network is trained
    verdict: Verdict
    networks: int = 0
    reason: str = ""
    outcomes: tuple[Outcome, ...] = ()

    @property
    def leading(self) -> Outcome | None:
        """The criterion whose numbers stand for the part."""
        judged = [outcome for outcome in self.outcomes if not outcome.control]
        return judged[0] if judged else None

    @property
    def needed(self) -> int | None:
        """Networks that would decide it."""
        counts = [outcome.needed for outcome in self.outcomes if outcome.needed]
        return max(counts, default=None)

    def to_dict(self) -> dict[str, Any]:
        leading = self.leading
        numbers = {"value": leading.mean, "interval": leading.interval} if leading else {}
        return {
            **{key: getattr(self, key) for key in ("name", "subject", "verdict", "networks", "reason")},
            **written_out({"value": None, "interval": None, **numbers, "needed": self.needed}),
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        kept = {key: content[key] for key in cls.__dataclass_fields__ if key != "outcomes"}
        return cls(**kept, outcomes=tuple(map(Outcome.from_dict, content["outcomes"])))


@dataclass(frozen=True)
class SubjectDecision:
    """A claim on one kind of network, after a run."""

    subject: str
    networks: int
    decides: bool  # else it is shown beside what decides
    verdict: Verdict
    reason: str = ""
    parts: tuple[PartDecision, ...] = ()
    measured: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        plain = {key: written_out(getattr(self, key)) for key in self.__dataclass_fields__ if key != "parts"}
        return {**plain, "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        parts = tuple(map(PartDecision.from_dict, content["parts"]))
        return cls(**{**content, "measured": read_back(content["measured"]), "parts": parts})


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
    outcomes: tuple[Outcome, ...] = ()  # of all parts that decide
    study: str = ""  # that decided it: D.law; empty in files of older versions
    parts: tuple[PartDecision, ...] = ()  # that decide; none in files of the first edition
    subjects: tuple[SubjectDecision, ...] = ()  # all that were measured, those beside too
    cost: str = ""  # of what would decide an open claim
    edition: int = 1  # of the rules
    first_edition: str = ""  # the verdict under the rules of the first edition, and where it was run
    schema: int = SCHEMA

    def __str__(self) -> str:
        lines = [f"{self.id} {self.verdict}: {self.claim}"]
        if len(self.parts) > 1:
            lines += [f"    {part.verdict}: {part.name}{_on(part.subject)}" for part in self.parts]
        lines += [f"    {in_words(self.measured)}"] if self.measured else []
        lines += [f"    because {self.reason}"] if self.reason else []
        lines += [f"    what would decide it: {self.cost}"] if self.verdict == "open" and self.cost else []
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """What is not finite as "inf", "-inf" or "nan": a JSON document has no numbers for them."""
        nested = ("outcomes", "parts", "subjects")
        written = {name: written_out(getattr(self, name)) for name in self.__dataclass_fields__ if name not in nested}
        return {**written, **{name: [each.to_dict() for each in getattr(self, name)] for name in nested}}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        read = {
            "outcomes": tuple(map(Outcome.from_dict, content.get("outcomes", ()))),
            "parts": tuple(map(PartDecision.from_dict, content.get("parts", ()))),
            "subjects": tuple(map(SubjectDecision.from_dict, content.get("subjects", ()))),
        }
        older = {} if "schema" in content else {"schema": 1}
        return cls(**{**content, "measured": read_back(content["measured"]), **read, **older})


def _on(subject: str) -> str:
    return f" ({subject})" if subject else ""


def _python(value: Any) -> Any:
    """The numbers of a tensor (on any device), a NumPy or an xarray array."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    return value.tolist() if hasattr(value, "tolist") else value


def numbers_of(value: Any) -> numpy.ndarray:
    """As float64, of whatever library, in no dimension or one; None is not a number."""
    import numpy

    value = _python(value)
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError("a number or a sequence of numbers")
    array = numpy.array(value, dtype=numpy.float64)
    return array if array.ndim == 0 else array.ravel()


def mean_of(members: numpy.ndarray) -> float:
    import numpy

    with numpy.errstate(invalid="ignore"):  # infinities of both signs
        mean = float(members.mean())
    # Rounding must not carry the mean of equal members over a threshold that they meet.
    return mean if math.isnan(mean) else min(max(mean, float(members.min())), float(members.max()))


def interval_of(members: numpy.ndarray) -> Interval:
    """Of the mean of two or more finite members, by Student's t."""
    from scipy.stats import t

    mean = mean_of(members)
    error = math.sqrt(float(((members - mean) ** 2).sum()) / (members.size * (members.size - 1)))
    half = float(t.ppf((1 + CONFIDENCE) / 2, members.size - 1)) * error
    return mean - half, mean + half


def shortened(value: Any) -> Any:
    """Many members by their mean, smallest and largest; all else as it is, in Python's own types."""
    import numpy

    value = _python(value)
    if isinstance(value, Mapping):
        return {str(key): shortened(part) for key, part in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    try:
        members = numbers_of(value)
    except (TypeError, ValueError):
        return [shortened(part) for part in value]
    if members.size <= LISTED:
        return [shortened(part) for part in value]
    numbers = members[~numpy.isnan(members)]
    short: dict[str, Any] = {"n": members.size}
    if numbers.size:
        short = {"mean": mean_of(numbers), "min": float(numbers.min()), "max": float(numbers.max()), **short}
    missing = members.size - numbers.size
    return {**short, "not a number": missing} if missing else short


def written_out(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: written_out(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [written_out(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_back(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: read_back(part) for key, part in value.items()}
    if isinstance(value, list):
        return [read_back(part) for part in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def in_words(measured: Mapping[str, Any]) -> str:
    return "; ".join(f"{key}: {_in_words(value)}" for key, value in measured.items())


def _in_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Mapping):  # members that were too many to keep
        return ", ".join(f"{key} {_in_words(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)) and len(value) > IN_FULL and all(isinstance(v, (int, float)) for v in value):
        finite = [v for v in value if math.isfinite(v)]
        mean = f"mean {sum(finite) / len(finite):.3g}, " if len(finite) == len(value) else ""
        return f"{mean}{min(value):.3g} to {max(value):.3g} ({len(value)})"
    if isinstance(value, (list, tuple)):
        return ", ".join(_in_words(v) for v in value) or "none"
    return str(value)
