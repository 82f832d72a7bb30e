"""All findings of a run, the gravest first, no more than can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray

from skipscope.findings.comparison import COMPARED, COMPARISONS
from skipscope.findings.finding import SEVERITIES, Finding
from skipscope.findings.networks import MeasuredNetwork, networks_of
from skipscope.findings.rules import RULES

FEWEST, MOST = 3, 6  # findings that are shown


def findings_of(datasets: Mapping[str, xarray.Dataset], *, most: int = MOST) -> list[Finding]:
    """Ranked: by severity, then by how far a number is from what is usual."""
    networks = networks_of(datasets)
    return ranked([*compared(networks), *(found for each in networks for rule in RULES for found in rule(each))], most)


def compared(networks: Sequence[MeasuredNetwork]) -> list[Finding]:
    if not 2 <= len(networks) <= COMPARED:
        return []
    return [found for comparison in COMPARISONS for found in comparison(networks)]


def ranked(findings: Sequence[Finding], most: int = MOST) -> list[Finding]:
    """One that says the same as another about a further network gives way to one that says something else."""
    ordered = sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), -found.weight))
    first: dict[str, Finding] = {}
    more = [finding for finding in ordered if first.setdefault(finding.name, finding) is not finding]
    return [*first.values(), *more[: max(FEWEST - len(first), 0)]][:most]
