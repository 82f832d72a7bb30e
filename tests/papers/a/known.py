"""Networks with known numbers, and what is decided from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import xarray

from skipscope.papers.a.studies import alignment, classes, collapse, counterfactuals, labels, sizes, skips
from skipscope.papers.kit import Claim, Evidence, Quantity
from skipscope.runs.decisions import Decision

POPULATIONS = (skips.STUDY, classes.STUDY, sizes.STUDY, labels.STUDY)
STUDY_OF = {
    claim: study
    for study in (alignment.STUDY, collapse.STUDY, counterfactuals.STUDY, *POPULATIONS)
    for claim in study.claims
}
MNIST = "type1-mnist"
RANDOM = {
    "line_shape": 3.3,
    "step_variation": 1.07,
    "over_chance_adjacent": 1.0,
    "over_chance_all": 1.0,
    "wide_over_chance_adjacent": 1.0,
    "wide_over_chance_all": 1.0,
    "swapped": 0.97,
    "swapped_last_half": 0.97,
    "swapped_over_chance": 1.0,
    "u1v1": 0.0,
    "u1v1_last_half": 0.0,
    "energy": 0.75,
    "gap": 0.5,
    "r_squared": 0.4,
    "slope": 0.01,
    "r_squared_papers": 0.4,
    "log_log_slope": -0.1,
    "coupling_all": 0.97,
    "large": 40.0,
    "train_accuracy": 0.1,
    "test_accuracy": 0.1,
}
ALIGNED = {
    "line_shape": 1.05,
    "step_variation": 0.1,
    "over_chance_adjacent": 0.4,
    "over_chance_all": 0.5,
    "wide_over_chance_adjacent": 0.5,
    "wide_over_chance_all": 0.6,
    "swapped": 0.5,
    "swapped_last_half": 0.5,
    "swapped_over_chance": 0.52,
    "u1v1": 0.9,
    "u1v1_last_half": 0.95,
    "energy": 0.999,
    "gap": 0.01,
    "r_squared": 0.98,
    "slope": 1.0,
    "r_squared_papers": 0.98,
    "log_log_slope": -1.0,
    "coupling_all": 0.5,
    "large": 10.0,
    "train_accuracy": 1.0,
    "test_accuracy": 0.95,
}


def fake(seeds: int = 8, start: dict[str, float] | None = None, **end: float | list[float]) -> xarray.Dataset:
    """Two epochs: of random networks and of aligned ones, unless it says otherwise; one number, or one per seed."""
    rows = {
        name: numpy.stack(
            [numpy.broadcast_to(value, seeds) for value in ((RANDOM | (start or {}))[name], (ALIGNED | end)[name])], 1
        )
        for name in RANDOM
    }
    return xarray.Dataset(
        {name: (("seed", "epoch"), values) for name, values in rows.items()},
        {"seed": range(1000, 1000 + seeds), "epoch": [0, 250]},
        {"classes": 10, "width": 64, "data": "mnist", "decay_budget": 14.4, "weight_decay": 5e-3},
    )


def drawn(**values: float) -> xarray.Dataset:
    """Of 64 untrained networks."""
    return xarray.Dataset({name: ("draw", numpy.full(64, value)) for name, value in (RANDOM | values).items()})


def decided(claim: Claim, evidence: Evidence, preset: str = "full") -> Decision:
    return STUDY_OF[claim].decide(claim, evidence[claim], preset)


def of(found: Evidence, claim: Claim, place: int = 0) -> Mapping[Quantity, Any]:
    """What was measured for a claim on a subject."""
    return list(found[claim])[place].values


def verdicts(decision: Decision) -> dict[str, str]:
    return {part.name: part.verdict for part in decision.parts}


def require_all_quantities(found: Evidence) -> None:
    """Every quantity that criteria and controls refer to, on the subjects together."""
    for claim, measured in found.items():
        known = {quantity for one in measured for quantity in one.values}
        assert {rule.quantity for rule in claim.rules} <= known, claim.id
