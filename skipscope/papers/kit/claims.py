"""A claim is declared with its criteria before a run, and decided from the run's data by them alone.

A claim says one thing or several: parts, each with a verdict of its own. A part joins criteria with "and"; its controls
have to hold too, since a test whose control misbehaves says nothing. Evidence comes by subject, one kind of network
trained in one way, and is never pooled over subjects: the first subject that a claim names decides it, the others stand
beside it.

    part     reproduced if all criteria pass, not reproduced if one fails, else inconclusive;
             inconclusive where a failure would refute nothing, since training was too short;
             inconclusive ("not specific") if a control does not hold;
             open if the subject that decides it was not run, has too few networks, or does not meet its precondition
    claim    reproduced or not if all parts are; partly reproduced if one part is and another is not;
             open if a part is; reported if it has no parts; else inconclusive

Networks are judged on seeds from 1000 on: those below are for choosing rates and budgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from skipscope.papers.kit.criteria import Criterion
from skipscope.papers.kit.editions import first_edition
from skipscope.papers.kit.estimates import Estimate
from skipscope.papers.kit.quantities import Quantity
from skipscope.runs.decisions import EDITION, Decision, Outcome, PartDecision, SubjectDecision, Verdict, shortened

DECIDING = ("quick", "full", "paper")  # presets that can decide a claim; smoke decides nothing
FIRST_JUDGED_SEED = 1000


@dataclass(frozen=True, eq=False)
class Part:
    name: str  # what it says, in a few words; empty where a claim has one part
    criteria: tuple[Criterion, ...]
    controls: tuple[Criterion, ...] = ()
    subject: str = ""  # that decides it; by default the first of its claim
    too_short: str = ""  # why a failure refutes nothing, such as "20 of 200 epochs": then it is inconclusive

    def __post_init__(self) -> None:
        for criterion in self.rules:
            if not isinstance(criterion, Criterion):
                raise TypeError(f"{self.name or 'a part'}: criteria and controls are Criteria, not {criterion!r}")
        if not self.criteria:
            raise ValueError(f"{self.name or 'a part'}: a part has criteria")

    @property
    def rules(self) -> tuple[Criterion, ...]:
        """Criteria, then controls."""
        return (*self.criteria, *self.controls)

    @property
    def expected(self) -> str:
        """The rule in words."""
        rules = [*map(str, self.criteria), *(f"control: {control}" for control in self.controls)]
        return f"{f'{self.name}: ' if self.name else ''}{'; '.join(rules)}"

    def judge(self, values: Mapping[Quantity, Any]) -> tuple[Verdict, str, tuple[Outcome, ...]]:
        """The verdict, why, and every criterion and control."""
        found = [criterion.judge(values, len(self.criteria)) for criterion in self.criteria]
        controls = [replace(control.judge(values), control=True) for control in self.controls]
        outcomes = (*found, *controls)
        if not all(control.passed for control in controls):
            broken = [_found(control) for control in controls if not control.passed]
            return "inconclusive", f"not specific, the control does not hold: {'; '.join(broken)}", outcomes
        failed = [outcome for outcome in found if outcome.passed is False]
        if failed:
            why = "; ".join(map(_found, failed))
            if self.too_short:
                return "inconclusive", f"{self.too_short} are too few to refute it: {why}", outcomes
            return "not reproduced", why, outcomes
        unknown = [outcome.reason for outcome in found if outcome.passed is None]
        return ("inconclusive", "; ".join(unknown), outcomes) if unknown else ("reproduced", "", outcomes)


@dataclass(frozen=True)
class Measured:
    """What a study found for a claim on one subject."""

    values: Mapping[Quantity, Any]  # one number per network, or an estimate
    subject: str = ""  # empty where no network is trained: identities, random matrices
    seeds: Sequence[int] = ()  # of its networks; none where weights were given
    networks: int | None = None  # as many as seeds by default
    unmet: str = ""  # a precondition that fails, such as a train accuracy that is too low

    @property
    def count(self) -> int:
        return len(self.seeds) if self.networks is None else self.networks

    def in_short(self) -> dict[str, Any]:
        def short(value: Any) -> Any:
            return value.value if isinstance(value, Estimate) else shortened(value)

        return {quantity.name: short(value) for quantity, value in self.values.items()}


@dataclass(frozen=True, eq=False)
class Claim:
    id: str  # D3
    text: str
    statistic: str
    criteria: tuple[Criterion, ...] = ()  # of a claim that says one thing
    controls: tuple[Criterion, ...] = ()
    parts: tuple[Part, ...] = ()  # of a claim that says several things, in place of criteria and controls
    subjects: Mapping[str, int] = field(default_factory=dict)  # name: networks that it takes; the first one decides
    note: str = ""  # errata, and what is known
    ours: bool = False  # not made by the paper, but about it
    cost: str = ""  # of what decides it; by default that of the study's preset `full`

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Z][1-9]\d*", self.id):
            raise ValueError(f"{self.id}: a claim is named after its paper's letter, and numbered")
        if self.parts and (self.criteria or self.controls):
            raise ValueError(f"{self.id}: criteria and controls belong to its parts")
        if self.controls and not self.criteria:
            raise ValueError(f"{self.id}: a control belongs to criteria")
        if self.criteria:
            object.__setattr__(self, "parts", (Part("", self.criteria, self.controls),))
        names = [part.name for part in self.parts]
        if len(names) > 1 and ("" in names or len(set(names)) < len(names)):
            raise ValueError(f"{self.id}: parts have names, each its own, not {names}")
        _require_names_once(self.id, {quantity for rule in self.rules for quantity in rule.quantities})
        for part in self.parts:
            if part.subject and part.subject not in self.subjects:
                raise ValueError(f"{self.id}: {part.name}: '{part.subject}' is none of its subjects")
        if not self.parts and not self.note:
            raise ValueError(f"{self.id}: a claim without criteria says in its note why it is only reported")
        if any(count < 1 for count in self.subjects.values()):
            raise ValueError(f"{self.id}: at least one network")

    @property
    def rules(self) -> tuple[Criterion, ...]:
        """Criteria and controls of all parts."""
        return tuple(rule for part in self.parts for rule in part.rules)

    @property
    def letter(self) -> str:
        """Of its paper."""
        return self.id[0]

    @property
    def number(self) -> int:
        return int(self.id[1:])

    @property
    def expected(self) -> str:
        """The rules in words."""
        return " | ".join(part.expected for part in self.parts) or "reported, not judged"

    @property
    def deciding(self) -> tuple[str, ...]:
        """Subjects that decide it, or a part of it."""
        return tuple(dict.fromkeys(self._subject_of(part) for part in self.parts))

    def _subject_of(self, part: Part) -> str:
        return part.subject or next(iter(self.subjects), "")

    def decide(
        self,
        evidence: Sequence[Measured],
        preset: str,
        *,
        study: str,
        paper: str,
        reason: str | None = None,
        cost: str = "",
    ) -> Decision:
        """study: its id. paper: authors and title. cost: of what decides it, if it stays open.

        reason: why there is no evidence, if the study knows (it was not run, its data are missing).
        """
        by_subject = {measured.subject: measured for measured in evidence}
        if len(by_subject) < len(evidence):
            raise ValueError(f"{self.id}: a subject was measured twice; its networks belong together")
        for measured in evidence:
            _require_names_once(self.id, measured.values)
        subjects = tuple(self._on_subject(measured, preset) for measured in evidence)
        parts = tuple(self._decided(part, by_subject, preset, reason) for part in self.parts)
        verdict, why = verdict_of(parts) if parts else ("reported", self.note)
        deciding = [measured for measured in evidence if measured.subject in self.deciding] or evidence[:1]
        return Decision(
            self.id,
            f"ours, on {paper}" if self.ours else paper,
            self.text,
            self.statistic,
            self.expected,
            _measured_together(deciding),
            verdict,
            preset,
            why,
            tuple(outcome for part in parts for outcome in part.outcomes),
            study,
            parts,
            subjects,
            (self.cost or cost) if verdict == "open" else "",
            EDITION,
            first_edition(self.id),
        )

    def _on_subject(self, measured: Measured, preset: str) -> SubjectDecision:
        """As if it decided alone."""
        mine = [part for part in self.parts if part.subject in ("", measured.subject)]
        parts = tuple(self._judged(part, measured, preset) for part in mine)
        verdict, why = verdict_of(parts) if parts else ("reported", self.note)
        decides = measured.subject in self.deciding
        return SubjectDecision(measured.subject, measured.count, decides, verdict, why, parts, measured.in_short())

    def _decided(self, part: Part, evidence: Mapping[str, Measured], preset: str, reason: str | None) -> PartDecision:
        subject = self._subject_of(part)
        if subject in evidence and not reason:
            return self._judged(part, evidence[subject], preset)
        return PartDecision(part.name, subject, "open", 0, reason or f"{subject or 'it'} was not measured")

    def _judged(self, part: Part, measured: Measured, preset: str) -> PartDecision:
        verdict, why, outcomes = part.judge(measured.values)
        unfit = self._unfit(measured, preset)
        if unfit:
            verdict, why = "open", unfit
        return PartDecision(part.name, measured.subject, verdict, measured.count, why, outcomes)

    def _unfit(self, measured: Measured, preset: str) -> str:
        """Why a subject cannot decide anything; empty where it can."""
        if preset not in DECIDING:
            return f"the preset {preset} decides nothing: needs {' or '.join(DECIDING)}"
        needed = self.subjects.get(measured.subject, 0)
        if measured.count < needed:
            return f"{measured.count} of the {needed} networks (seeds) that it takes"
        calibration = [seed for seed in measured.seeds if seed < FIRST_JUDGED_SEED]
        if calibration:
            return f"seeds below {FIRST_JUDGED_SEED} are for choosing settings, not for judging: {calibration}"
        return measured.unmet


def _measured_together(evidence: Sequence[Measured]) -> dict[str, Any]:
    """What was measured, by quantity; with the subject where several decide."""
    if len(evidence) == 1:
        return evidence[0].in_short()
    return {
        f"{name} ({measured.subject})": value for measured in evidence for name, value in measured.in_short().items()
    }


def verdict_of(parts: Sequence[PartDecision]) -> tuple[Verdict, str]:
    """The verdict of a claim, or of a subject, from those of its parts, and why."""
    verdicts = {part.verdict for part in parts}
    reasons = [f"{part.name}: {part.reason}" if part.name else part.reason for part in parts if part.reason]
    why = "; ".join(dict.fromkeys(reasons))
    if "open" in verdicts:
        return "open", "; ".join(dict.fromkeys(part.reason for part in parts if part.verdict == "open"))
    if len(verdicts) == 1:
        return next(iter(verdicts)), why
    both = {"reproduced", "not reproduced"} <= verdicts
    return ("partly reproduced" if both else "inconclusive"), why


def _found(outcome: Outcome) -> str:
    """What was found in place of what was expected."""
    if outcome.passed is None:
        return outcome.reason
    expected = str(Criterion(Quantity(outcome.quantity), outcome.relation, outcome.threshold))
    if outcome.n == 1:
        return f"{expected}, found {outcome.mean:.4g}"
    interval = f" ({outcome.interval[0]:.4g} to {outcome.interval[1]:.4g})" if outcome.interval else ""
    return f"{expected}, found a mean of {outcome.mean:.4g}{interval}, and {outcome.passing} of {outcome.n} pass"


def _require_names_once(claim: str, quantities: Iterable[Quantity]) -> None:
    """Two quantities of one name would be one in the record of the run."""
    names = [quantity.name for quantity in quantities]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"{claim}: several quantities have the name {', '.join(map(repr, doubled))}; use one object")
