"""All findings of a run, the gravest first, no more than can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray

from skipscope.findings.comparison import COMPARED, COMPARISONS
from skipscope.findings.finding import SEVERITIES, Finding
from skipscope.findings.networks import MeasuredNetwork, networks_of
from skipscope.findings.rules import RULES
from skipscope.findings.sweeps import sweep_findings

FEWEST, MOST = 3, 6  # findings that are shown


def findings_of(datasets: Mapping[str, xarray.Dataset], *, most: int = MOST) -> list[Finding]:
    """Ranked: what differs between networks, then by severity, then by how far a number is from what is usual."""
    networks = networks_of(datasets)
    before = [*compared(networks), *sweep_findings(datasets)]
    return ranked([found for each in networks for rule in RULES for found in rule(each)], most, before)


def compared(networks: Sequence[MeasuredNetwork]) -> list[Finding]:
    if not 2 <= len(networks) <= COMPARED:
        return []
    return [found for comparison in COMPARISONS for found in comparison(networks)]


def ranked(findings: Sequence[Finding], most: int = MOST, before: Sequence[Finding] = ()) -> list[Finding]:
    """before: those that come first whatever their severity.

    One that says the same as another about a further network gives way to one that says something else. Of what is
    normal, one is enough, or as many as make three."""
    ordered = [*before, *sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), -found.weight))]
    first: dict[str, Finding] = {}
    more = [finding for finding in ordered if first.setdefault(finding.name, finding) is not finding]
    grave = [finding for finding in first.values() if finding.severity != "normal"]
    normal = [finding for finding in first.values() if finding.severity == "normal"]
    found = [*grave[:most], *normal[: max(FEWEST - len(grave), 1)]]
    return [*found, *more[: max(FEWEST - len(found), 0)]][:most]
