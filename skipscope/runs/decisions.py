"""A decided claim: what claims.json holds and every report can show, whoever declared the claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from skipscope.runs.numbers import Interval, in_words, read_back, written_out

Relation = Literal["<=", ">=", "<", ">", "==", "within"]
Verdict = Literal["reproduced", "not reproduced", "inconclusive"]


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
        return {key: written_out(value) for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        return cls(**{key: _tuple(read_back(value)) for key, value in content.items()})


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
    study: str = ""  # that decided it: D.law; empty in files of older versions

    def __str__(self) -> str:
        measured = f"\n    {in_words(self.measured)}" if self.measured else ""
        reason = f"\n    because {self.reason}" if self.reason else ""
        return f"{self.id} {self.verdict}: {self.claim}{measured}{reason}"

    def to_dict(self) -> dict[str, Any]:
        """What is not finite as "inf", "-inf" or "nan": a JSON document has no numbers for them."""
        written = {name: written_out(getattr(self, name)) for name in self.__dataclass_fields__ if name != "outcomes"}
        return {**written, "outcomes": [outcome.to_dict() for outcome in self.outcomes]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        outcomes = tuple(Outcome.from_dict(outcome) for outcome in content.get("outcomes", ()))
        return cls(**{**content, "measured": read_back(content["measured"]), "outcomes": outcomes})


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
