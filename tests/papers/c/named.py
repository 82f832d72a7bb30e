"""Evidence by the names of claims and quantities, as claims.json has them, and decisions on it."""

from __future__ import annotations

from typing import Any

from skipscope.papers.kit import Evidence, Measured, Study
from skipscope.papers.kit.study import Found
from skipscope.runs.decisions import Decision

Named = dict[str, dict[str, Any]]  # of each claim: its quantities


def by_name(evidence: Evidence, subject: str | None = None) -> Named:
    """Of one subject, or of the first that there is."""
    return {
        claim.id: {quantity.name: value for quantity, value in _values(found, subject).items()}
        for claim, found in evidence.items()
    }


def _values(found: Found, subject: str | None) -> Any:
    if not isinstance(found, (list, tuple)):
        return found
    chosen: list[Measured] = [measured for measured in found if subject in (None, measured.subject)]
    return chosen[0].values if chosen else {}


def decided(study: Study, name: str, evidence: Evidence, preset: str = "full") -> Decision:
    """One of the study's claims."""
    claim = next(claim for claim in study.claims if claim.id == name)
    return study.decide(claim, evidence[claim], preset)
