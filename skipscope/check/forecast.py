"""What a check found, in plain words."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skipscope.check.remedies import NOT_FINITE, Trial
from skipscope.check.rules import DEVIATIONS, Rule, by_signal, rules_for
from skipscope.check.short_training import DOES_NOT_LEARN, ShortTraining
from skipscope.findings import Finding, in_lines
from skipscope.report import Table

if TYPE_CHECKING:
    import xarray

WIDTH = 110


@dataclass(frozen=True)
class Forecast:
    """findings: what is broken; where nothing is, what was looked at and is as it should be. signals: the numbers that
    the rules look at. layers: the profile they come from. notes: what was measured.

    units: gain and spread of the residual units; None where there are none to measure, as a note then says. errors:
    standard errors of signals over samples. unanswered: by the name of a rule, why it cannot be answered. diagnoses:
    known mistakes, in words. trials: the remedies that were tried on a copy of the model. optimiser: what it is to be
    trained with, "sgd" or "adam". short_training: of copies, where there were data to train on; its verdict stands
    above that of the rules.
    """

    findings: tuple[Finding, ...]
    signals: Mapping[str, float]
    layers: xarray.Dataset
    notes: tuple[str, ...]
    units: xarray.Dataset | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    unanswered: Mapping[str, str] = field(default_factory=dict)
    diagnoses: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    optimiser: str = "sgd"
    short_training: ShortTraining | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Those of the optimiser, broken or not."""
        return rules_for(self.optimiser)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are expected to keep it from training; the others say what is as it should be."""
        return tuple(finding for finding in self.findings if finding.severity == "problem")

    @property
    def trains(self) -> bool | None:
        """Whether the network is expected to train: no problem was found. None where a rule could not be answered, and
        no short training did."""
        if self.problems:
            return False
        return None if self.unanswered and self.short_training is None else True

    @property
    def near(self) -> bool:
        """Whether the verdict hangs on a number that is near its threshold: with other samples, or after a longer
        training, it might be another."""
        if self.short_training is not None:  # and nothing without a threshold stands against it
            return self.short_training.near and all(finding.threshold is not None for finding in self.problems)
        if self.problems:
            return all(finding.near for finding in self.problems)
        return any(self._near(rule) for rule in self.rules)

    @property
    def verdict(self) -> str:
        if self.trains is None:
            return "Cannot say whether it is expected to train"
        margin = ", by a narrow margin" if self.near else ""
        return f"{'Expected' if self.trains else 'Not expected'} to train{margin}"

    def _near(self, rule: Rule) -> bool:
        return rule.near(self.signals[rule.signal], self.errors.get(rule.signal, 0.0))

    def to_dict(self) -> dict[str, Any]:
        return {
            "trains": self.trains,
            "verdict": self.verdict,
            "near": self.near,
            "optimiser": self.optimiser,
            "findings": [finding.to_dict() for finding in self.findings],
            "unanswered": dict(self.unanswered),
            "diagnoses": list(self.diagnoses),
            "trials": [vars(trial) for trial in self.trials],
            "signals": dict(self.signals),
            "errors": dict(self.errors),
            "rules": [
                {
                    "name": rule.name,
                    "signal": rule.signal,
                    "broken": "above" if rule.above else "below",
                    "threshold": rule.threshold,
                }
                for rule in self.rules
            ],
            "layers": self.layers.to_dict(),
            "units": None if self.units is None else self.units.to_dict(),
            "short_training": None if self.short_training is None else self.short_training.to_dict(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """All of it."""
        tables = [str(self._table()), *([str(self._tried())] if self.trials else [])]
        units = [] if self.units is None else [textwrap.fill(_spectra(self.units), WIDTH)]
        return "\n\n".join([self._first(), *tables, *units, self._noted()])

    @property
    def short(self) -> str:
        """The verdict, what was found with its remedies or is as it should be, and the notes, without tables."""
        fine = "" if self.problems else in_lines(self.findings)
        return "\n\n".join(filter(None, [self._first(), fine, self._noted()]))

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, what was found with its remedies, and the notes."""
        sentences = self._sentences() or [finding.sentence for finding in self.findings]
        found = "".join(f"<li>{html.escape(each)}</li>" for each in sentences)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<p><b>{self.verdict}.</b></p><ul>{found}</ul>{notes}"

    def _first(self) -> str:
        sentences = self._sentences()
        lines = [textwrap.fill(each, WIDTH, initial_indent="- ", subsequent_indent="  ") for each in sentences]
        return "\n".join([f"{self.verdict}.", *lines])

    def _noted(self) -> str:
        return "\n".join(textwrap.fill(note, WIDTH) for note in self.notes)

    def _sentences(self) -> list[str]:
        found = [self._found(finding) for finding in self.problems]
        if self.problems and self.short_training is not None and self.short_training.learns:
            found.append(self.short_training.finding.sentence)
        mending = self._mending if self._mends_all else []
        what = f"Each of these mends all of it on a copy, the best first: {'; '.join(mending)}." if mending else ""
        unanswered = [] if self.short_training else self.unanswered.values()
        return [*found, *filter(None, [what]), *unanswered, *self.diagnoses]

    @property
    def _mending(self) -> list[str]:
        return [trial.remedy for trial in self.trials if not trial.broken]

    @property
    def _mends_all(self) -> bool:
        """Whether one list of remedies says it for several findings."""
        return len(self._mendable) > 1 and bool(self._mending)

    @property
    def _mendable(self) -> list[Finding]:
        """The problems that remedies were tried for: a training is not repeated with them."""
        return [finding for finding in self.problems if finding.name != DOES_NOT_LEARN]

    def _found(self, finding: Finding) -> str:
        if finding.name == DOES_NOT_LEARN:
            return finding.sentence
        if finding.remedies and self._mends_all:
            return finding.sentence
        if finding.remedies:
            return f"{finding.sentence} Remedies: {', '.join(finding.remedies)}."
        return f"{finding.sentence} No remedy that was tried mends it alone." if self.trials else finding.sentence

    def _table(self) -> Table:
        rows = [
            (
                rules[0].question,
                rules[0].shown(self.signals[signal]),
                self._range(rules[0]),
                ", ".join(sorted(rule.limit for rule in rules)),
                self._answer(rules),
            )
            for signal, rules in by_signal(self.rules).items()
        ]
        return Table("Signals", ("question", "measured", "with other samples", "expected", ""), rows)

    def _range(self, rule: Rule) -> str:
        """Two standard errors to each side."""
        value, reach = self.signals[rule.signal], DEVIATIONS * self.errors.get(rule.signal, math.nan)
        if math.isnan(value) or math.isnan(reach) or rule.name in self.unanswered:
            return "-"
        return f"{rule.shown(value - reach)} to {rule.shown(value + reach)}"

    def _answer(self, rules: list[Rule]) -> str:
        if any(rule.name in self.unanswered for rule in rules):
            return "cannot say"
        near = "near" if any(map(self._near, rules)) else ""
        broken = "broken" if any(rule.broken(self.signals) for rule in rules) else ""
        return ", ".join(word for word in (broken, near) if word)

    def _tried(self) -> Table:
        shown = {signal: rules[0] for signal, rules in by_signal(self.rules).items()}
        broken = ", ".join(rule.name for rule in self.rules if rule.broken(self.signals)) or NOT_FINITE
        rows = [("as it is", *(rule.shown(self.signals[signal]) for signal, rule in shown.items()), broken)]
        rows += [
            (
                trial.remedy,
                *(rule.shown(trial.signals[signal]) for signal, rule in shown.items()),
                ", ".join(trial.broken),
            )
            for trial in self.trials
        ]
        return Table(
            "Remedies, each tried on a copy", ("", *(name.replace("_", " ") for name in shown), "broken"), rows
        )


def _spectra(units: xarray.Dataset) -> str:
    gain, spread = units["gain"], units["spread"].dropna("unit")
    low, high, error = (10 ** float(value) for value in (gain.min(), gain.max(), units["gain_error"].max()))
    sentence = (
        f"Units: {units.sizes['unit']}. Root mean square of the singular values {low:.3g} to {high:.3g} per unit "
        f"(standard error at most {error - 1:.1%}), 10^{float(gain.sum()):.1f} over all of them (product)"
    )
    if spread.size:
        most = f"{spread.idxmax().item()} ({float(spread.max()):.3g})"
        sentence += f"; spread {float(spread.sum()):.3g} in all, largest at {most}"
    return f"{sentence}. Measured at {units.attrs['samples']} samples; {units.attrs['mode']}."
