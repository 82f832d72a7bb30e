"""What a check found, in plain words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipscope.check.rules import RULES, Rule
from skipscope.report import Table

if TYPE_CHECKING:
    import xarray

WIDTH = 110


@dataclass(frozen=True)
class Finding:
    """A broken rule, or a state that is not finite (then without a number)."""

    name: str
    sentence: str
    remedies: tuple[str, ...]
    value: float | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Forecast:
    """signals: the numbers that the rules look at. layers: the profile they come from. notes: what was measured.

    units: gain and spread of the residual units; None where there are none to measure, as a note then says.
    """

    findings: tuple[Finding, ...]
    signals: Mapping[str, float]
    layers: xarray.Dataset
    notes: tuple[str, ...]
    units: xarray.Dataset | None = None

    @property
    def trains(self) -> bool:
        """Whether the network is expected to train: nothing was found."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        return {
            "trains": self.trains,
            "findings": [vars(finding) for finding in self.findings],
            "signals": dict(self.signals),
            "rules": [
                {
                    "name": rule.name,
                    "signal": rule.signal,
                    "broken": "above" if rule.above else "below",
                    "threshold": rule.threshold,
                }
                for rule in RULES
            ],
            "layers": self.layers.to_dict(),
            "units": None if self.units is None else self.units.to_dict(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        said = "Expected to train." if self.trains else "Not expected to train."
        found = [
            textwrap.fill(
                f"{finding.sentence} Remedies: {'; '.join(finding.remedies)}.",
                WIDTH,
                initial_indent="- ",
                subsequent_indent="  ",
            )
            for finding in self.findings
        ]
        notes = [textwrap.fill(note, WIDTH) for note in self.notes]
        units = [] if self.units is None else [textwrap.fill(_spectra(self.units), WIDTH)]
        return "\n\n".join(["\n".join([said, *found]), str(self._table()), *units, "\n".join(notes)])

    def _table(self) -> Table:
        asked: dict[str, list[Rule]] = {}
        for rule in RULES:
            asked.setdefault(rule.signal, []).append(rule)
        rows = [
            (
                rules[0].question,
                rules[0].shown(self.signals[signal]),
                ", ".join(sorted(map(_limit, rules))),
                "broken" if any(rule.broken(self.signals) for rule in rules) else "",
            )
            for signal, rules in asked.items()
        ]
        return Table("Signals", ("question", "measured", "expected", ""), rows)


def _limit(rule: Rule) -> str:
    return f"{'at most' if rule.above else 'at least'} {rule.shown(rule.threshold)}"


def _spectra(units: xarray.Dataset) -> str:
    gain, spread = units["gain"], units["spread"].dropna("unit")
    low, high, error = (10 ** float(value) for value in (gain.min(), gain.max(), units["gain_error"].max()))
    said = (
        f"Units: {units.sizes['unit']}. Root mean square of the singular values {low:.3g} to {high:.3g} a unit "
        f"(standard error at most {error - 1:.1%}), 10^{float(gain.sum()):.1f} over all of them (product)"
    )
    if spread.size:
        most = f"{spread.idxmax().item()} ({float(spread.max()):.3g})"
        said += f"; spread {float(spread.sum()):.3g} in all, largest at {most}"
    return f"{said}. Measured at {units.attrs['samples']} samples; {units.attrs['mode']}."
