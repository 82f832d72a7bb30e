"""A claim is declared with its criteria before a run, and decided from the run's data by them alone.

A claim is inconclusive where the preset or the number of seeds cannot decide it, or where a control fails, since a test
whose control misbehaves says nothing; not reproduced if a criterion fails; inconclusive if one is; else reproduced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from skipscope.runs.criteria import TWO_THIRDS, Criterion, Outcome
from skipscope.runs.numbers import in_words, read_back, shortened, written_out

__all__ = ["PAPERS", "PRESETS", "TWO_THIRDS", "Claim", "Criterion", "Decision", "Outcome", "Verdict"]

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]

PAPERS = {
    "A": "Li, Papyan: Residual Alignment: Uncovering the Mechanisms of Residual Networks",
    "B": "Li, Jiao, Han, Weissman: Demystifying ResNet",
    "C": "Oyedotun, Al Ismaeil, Aouada: Training very deep neural networks: Rethinking the role of skip connections",
    "D": "Rothauge, Yao, Hu, Mahoney: Residual Networks as Nonlinear Systems: Stability Analysis using Linearization",
}
PRESETS = ("quick", "full", "paper")  # that can decide a claim; smoke decides nothing


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


@dataclass(frozen=True)
class Claim:
    id: str  # D3
    paper: str  # D
    text: str
    statistic: str
    study: str  # that decides it: D.law
    criteria: tuple[Criterion, ...]
    controls: tuple[Criterion, ...] = ()
    seeds: int = 1  # networks that it takes; the evidence counts them as its "seeds", one where it says nothing
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
        measured = {str(name): shortened(value) for name, value in evidence.items()}
        return Decision(
            self.id, self.title, self.text, self.statistic, self.expected, measured, verdict, preset, why, outcomes
        )

    def _verdict(self, evidence: Mapping[str, Any], preset: str, outcomes: Sequence[Outcome]) -> tuple[Verdict, str]:
        if not self.criteria:
            return "inconclusive", f"reported, not judged: {self.note}"
        if preset not in self.presets:
            return "inconclusive", f"the preset {preset} cannot decide it: needs {' or '.join(self.presets)}"
        seeds = evidence.get("seeds", 1)
        if seeds < self.seeds:
            return "inconclusive", f"{seeds} of the {self.seeds} networks (seeds) that it takes"
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
