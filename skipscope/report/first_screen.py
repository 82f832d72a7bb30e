"""What a reader sees first of a run: what was looked at, what was found, three numbers and one picture.

The findings come from `skipscope.findings`; here they are joined with the map and the figures of the report, so that a
click on a finding opens its unit and its figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skipscope.report.content import Content
from skipscope.report.table import number

if TYPE_CHECKING:
    from skipscope.findings import Finding

SIGNS = {"problem": "✗", "unusual": "!", "notable": "●", "normal": "✓"}
FINDINGS_SHOWN = 6


def first_screen(content: Content) -> dict[str, Any]:
    """For the template. A finding with the same sentence as the headline is the headline."""
    overview = content.overview
    figures = [name for section in content.sections for name in section.view.figures]
    findings = [_finding(one, content.maps, figures) for one in overview.findings]
    leading = next((one for one in findings if one["sentence"] == overview.headline), None)
    return {
        "about": overview.about,
        "headline": overview.headline,
        "leading": leading,
        "findings": [one for one in findings if one is not leading][:FINDINGS_SHOWN],
        "tiles": overview.tiles,
        "figure": figure_named(overview.figure, figures),
        "panels": overview.panels,
        "warnings": content.warnings,
    }


def _finding(one: Finding, maps: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> dict[str, Any]:
    return {
        "severity": one.severity,
        "sign": SIGNS[one.severity],
        "sentence": one.sentence,
        "remedies": one.remedies,
        "numbers": "; ".join(f"{name}: {number(value)}" for name, value in one.numbers.items()),
        "place": place_in_map(one.unit, one.network, maps),
        "figure": figure_named(one.figure, figures, one.network),
    }


def figure_named(name: str, figures: Sequence[str], network: str = "") -> str:
    """The figure of that name, or whose name begins or ends with it, if possible one that names the network; empty
    where there is none."""
    if not name:
        return ""
    rules = (str.__eq__, lambda own, name: own.startswith(f"{name}-"), lambda own, name: own.endswith(f"-{name}"))
    found = next((chosen for rule in rules if (chosen := [own for own in figures if rule(own, name)])), [""])
    return next((own for own in found if network and network in own), found[0])


def place_in_map(unit: str, network: str, maps: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Network and unit, where the map has it; of a layer the unit that it is in."""
    if not unit:
        return None
    for one in sorted(maps, key=lambda one: one["network"] != network):
        names = [str(own["name"]) for own in one["units"]]
        inside = [name for name in names if f"{unit}.".startswith(f"{name}.")]
        if inside:
            return {"network": one["network"], "unit": max(inside, key=len)}
    return None
