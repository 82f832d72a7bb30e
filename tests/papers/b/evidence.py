"""What the tests of paper B's studies ask of evidence, whether it comes by subject or without networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from skipscope.papers.kit import Claim, Measured, Quantity
from skipscope.papers.kit.study import Found


def values(found: Found) -> dict[Quantity, Any]:
    """Of all subjects together."""
    if isinstance(found, Mapping):
        return dict(found)
    return {quantity: value for measured in found for quantity, value in measured.values.items()}


def missing(claim: Claim, found: Found) -> set[Quantity]:
    """What the claim asks for and the evidence does not have."""
    return {quantity for rule in claim.rules for quantity in rule.quantities} - set(values(found))


def about(subject: str, found: Sequence[Measured], networks: int | None = None) -> list[Measured]:
    """The same as if it were about another subject, with so many networks."""
    seeds = () if networks is None else tuple(range(1000, 1000 + networks))
    return [replace(measured, subject=subject, seeds=seeds or measured.seeds) for measured in found]
