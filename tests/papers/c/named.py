"""Evidence by the names of claims and quantities, as claims.json has them, and decisions on it."""

from __future__ import annotations

from typing import Any

from skipscope.papers.kit import Evidence, Study
from skipscope.runs.decisions import Decision

Named = dict[str, dict[str, Any]]  # of each claim: its quantities


def by_name(evidence: Evidence) -> Named:
    return {
        claim.id: {quantity.name: value for quantity, value in values.items()} for claim, values in evidence.items()
    }


def decided(study: Study, name: str, evidence: Evidence, preset: str = "full") -> Decision:
    """One of the study's claims."""
    claim = next(claim for claim in study.claims if claim.id == name)
    return study.decide(claim, evidence[claim], preset)
