"""A claim is declared with its criteria before a run, and decided from the run's data by them alone.

A claim is inconclusive where the preset or the number of seeds cannot decide it, or where a control fails, since a test
whose control misbehaves says nothing; not reproduced if a criterion fails; inconclusive if one is; else reproduced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skipscope.papers.kit.criteria import Criterion
from skipscope.papers.kit.quantities import SEEDS, Quantity
from skipscope.runs.decisions import Decision, Outcome, Verdict, shortened

DECIDING = ("quick", "full", "paper")  # that can decide a claim; smoke decides nothing


@dataclass(frozen=True, eq=False)
class Claim:
    id: str  # D3
    text: str
    statistic: str
    criteria: tuple[Criterion, ...]
    controls: tuple[Criterion, ...] = ()
    seeds: int = 1  # networks that it takes; the evidence counts them by SEEDS, one where it says nothing
    presets: tuple[str, ...] = DECIDING  # that can decide it
    note: str = ""  # errata, and what is known
    ours: bool = False  # not made by the paper, but about it

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Z][1-9]\d*", self.id):
            raise ValueError(f"{self.id}: a claim is named after its paper's letter, and numbered")
        for criterion in self.rules:
            if not isinstance(criterion, Criterion):
                raise TypeError(f"{self.id}: criteria and controls are Criteria, not {criterion!r}")
        _require_names_once(self.id, {criterion.quantity for criterion in self.rules})
        if not self.presets or set(self.presets) - set(DECIDING):
            raise ValueError(f"{self.id}: the presets that decide are among {DECIDING}, not {self.presets}")
        if not self.criteria and not self.note:
            raise ValueError(f"{self.id}: a claim without criteria says in its note why it is only reported")
        if self.seeds < 1:
            raise ValueError(f"{self.id}: at least one seed, not {self.seeds}")

    @property
    def rules(self) -> tuple[Criterion, ...]:
        """Criteria, then controls."""
        return (*self.criteria, *self.controls)

    @property
    def letter(self) -> str:
        """Of its paper."""
        return self.id[0]

    @property
    def number(self) -> int:
        return int(self.id[1:])

    @property
    def expected(self) -> str:
        """The rule in words."""
        rules = [str(criterion) for criterion in self.criteria] or ["reported, not judged"]
        return "; ".join([*rules, *(f"control: {control}" for control in self.controls)])

    def decide(
        self, evidence: Mapping[Quantity, Any], preset: str, *, study: str, paper: str, reason: str | None = None
    ) -> Decision:
        """study: its id. paper: authors and title.

        reason: why the evidence cannot decide it, if the study knows (it was not run, its data are missing).
        """
        _require_names_once(self.id, evidence)
        outcomes = (
            *(criterion.judge(evidence) for criterion in self.criteria),
            *(replace(control.judge(evidence), control=True) for control in self.controls),
        )
        verdict, why = self._verdict(evidence, preset, outcomes)
        if reason:
            verdict, why = "inconclusive", reason
        return Decision(
            self.id,
            f"ours, on {paper}" if self.ours else paper,
            self.text,
            self.statistic,
            self.expected,
            {quantity.name: shortened(value) for quantity, value in evidence.items()},
            verdict,
            preset,
            why,
            outcomes,
            study,
        )

    def _verdict(
        self, evidence: Mapping[Quantity, Any], preset: str, outcomes: Sequence[Outcome]
    ) -> tuple[Verdict, str]:
        if not self.criteria:
            return "inconclusive", f"reported, not judged: {self.note}"
        if preset not in self.presets:
            return "inconclusive", f"the preset {preset} cannot decide it: needs {' or '.join(self.presets)}"
        seeds = evidence.get(SEEDS, 1)
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
    expected = str(Criterion(Quantity(outcome.quantity), outcome.relation, outcome.threshold))
    if outcome.n == 1:
        return f"{expected}, found {outcome.mean:.4g}"
    return f"{expected}, found a mean of {outcome.mean:.4g}, and {outcome.passing} of {outcome.n} members pass"


def _require_names_once(claim: str, quantities: Iterable[Quantity]) -> None:
    """Two quantities of one name would be one in the record of the run."""
    names = [quantity.name for quantity in quantities]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"{claim}: several quantities have the name {', '.join(map(repr, doubled))}; use one object")
