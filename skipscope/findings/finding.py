"""A finding: one sentence, how much it matters, which unit it is about, and the numbers behind it."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from skipscope.visible import visible

Severity = Literal["problem", "unusual", "notable", "normal"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # the gravest first
WIDTH = 110  # of text on a terminal


@dataclass(frozen=True)
class Finding:
    """severity: a problem is expected to keep the network from training, or makes numbers useless; unusual is out of
    the range of models of its kind, or far from its neighbours; notable is worth knowing; normal says what was looked
    at without finding anything.

    unit: the unit, layer or stage that it is about; empty for the whole network. numbers: those behind the sentence, by
    name. remedies: what mends it; those of a check were tried on a copy, with what they make of the number. value,
    threshold: of the number that decides. near: whether other samples might put it on the other side. measure,
    figure: the dataset that it comes from, and the end of the name of a figure that shows it.
    """

    name: str
    sentence: str
    remedies: tuple[str, ...] = ()
    value: float | None = None
    threshold: float | None = None
    near: bool = False
    severity: Severity = "problem"
    unit: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    network: str = ""
    measure: str = ""
    figure: str = ""
    weight: float = 0.0  # among findings of one severity the largest comes first

    def __str__(self) -> str:
        return f"{self.severity}: {self.sentence}"

    @property
    def told(self) -> str:
        """The sentence, and what to try."""
        return f"{self.sentence} To try: {'; '.join(self.remedies)}." if self.remedies else self.sentence

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        own = {key: value for key, value in vars(self).items() if key not in ("weight", "figure")}
        return {**own, "remedies": list(self.remedies), "numbers": dict(self.numbers)}


@dataclass(frozen=True)
class Tile:
    """One number of a first screen, with its title and what it is."""

    title: str
    value: str
    about: str = ""


@dataclass(frozen=True)
class Summary:
    """What a reader sees first. figure: the name of one of the report's figures, or empty. panels: the quantities of it
    that the headline is about; empty for all of it."""

    about: str
    headline: str
    findings: tuple[Finding, ...] = ()
    tiles: tuple[Tile, ...] = ()
    figure: str = ""
    panels: tuple[str, ...] = ()


def in_lines(findings: Sequence[Finding]) -> str:
    """As text: one finding after another, each behind the word for its severity."""
    column = max((len(finding.severity) for finding in findings), default=0) + 2
    return "\n".join(
        textwrap.fill(
            visible(finding.told),
            WIDTH,
            initial_indent=f"{finding.severity:<{column}}",
            subsequent_indent=" " * column,
            break_long_words=False,
        )
        for finding in findings
    )


def as_html(findings: Sequence[Finding]) -> str:
    """As a notebook shows it; names of units and networks are text."""
    rows = [f"<li><b>{finding.severity}</b> {html.escape(visible(finding.told))}</li>" for finding in findings]
    return f"<ul>{''.join(rows)}</ul>"
