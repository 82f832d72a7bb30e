"""The profile of a trunk: cheap numbers for every unit, on a model of any size.

state_rms            |h| / sqrt(n) of the unit's entry
branch_over_skip     |F(h)| / |S(h)|
cosine               <F(h), S(h)> / (|F(h)| |S(h)|)
sum_zeros            entries of S(h) + F(h) that are exactly zero: a ReLU after the sum has the derivative 0 there by
                     convention
gradient_rms         |dL/dh| / sqrt(n) at the unit's entry
jacobian_square      |J|_F^2 / n, the mean square of the unit's singular values, from random probes:
                     E |J z|^2 = |J|_F^2 for signs z; `jacobian_square_error` is the standard error of the mean
effective_rank       exp(entropy) of the squared singular values of the batch of entries, samples x n: between 1 and
                     the number of samples
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.derivative import attempt
from skipscope.linear.layout import by_sample
from skipscope.measure.selection import Units, chosen_units, labels, point_of
from skipscope.measure.states import (
    along_random_direction,
    direction,
    effective_rank,
    mean_square,
    norm,
    rms,
)
from skipscope.numerics import random_numbers
from skipscope.trace import Point, Trunk, Unit
from skipscope.trace.trunk import Path

if TYPE_CHECKING:
    import xarray


def profile(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    loss: Callable[[Any], Tensor] | None = None,
    probes: int = 8,
    seed: int = 0,
) -> xarray.Dataset:
    """Measure units (names or indices, all by default) at a batch of model inputs or a point; dimensions `unit` and
    `sample`.

    loss: a scalar function of the model's output for the gradients; without one they are those of the output along a
    random direction of about unit length per sample, which says how gradients travel, not how large a loss makes them.
    """
    import xarray

    if probes < 2:
        raise InputError(f"probes={probes}: at least 2 are needed for an error estimate")
    chosen, point = chosen_units(trunk, units), point_of(trunk, x)
    generator = random_numbers("probes", seed)
    gradients = attempt(lambda: point.gradients(loss or along_random_direction(point.batch, generator)))
    gradient = "of the given loss" if loss else "of the output along a random direction of about unit length"
    if isinstance(gradients, str):  # an operation somewhere has no derivative: the units that have one are measured
        gradient, gradients = f"not measured: {gradients}", [None] * len(trunk.units)
    rows = [_unit(unit, point, gradients[unit.index], probes, seed) for unit in chosen]
    columns = {key: torch.stack([row[key] for row in rows]).cpu().numpy() for key in rows[0]}
    data = {key: (("unit", "sample") if array.ndim == 2 else ("unit",), array) for key, array in columns.items()}
    return xarray.Dataset(
        data,
        coords=labels(chosen),
        attrs={
            "measure": "profile",
            "mode": "eval",
            "gradient": gradient,
            "probes": probes,
            "seed": seed,
            "replay_error": float("nan") if trunk.replay_error is None else trunk.replay_error,
            "notes": "; ".join(trunk.notes),
        },
    )


def _unit(unit: Unit, point: Point, gradient: Tensor | None, probes: int, seed: int) -> dict[str, Tensor]:
    # Probes of its own: what is drawn for a unit does not depend on which others are looked at.
    generator = random_numbers("probes", seed, unit.index)
    entry = point.entry(unit)
    state = by_sample(entry, unit.batch_axis)
    with torch.no_grad():
        branch = by_sample(unit.branch.bound(point)(entry), _exit_axis(unit.branch, unit))
        skip = by_sample(unit.skip.bound(point)(entry), _exit_axis(unit.skip, unit))
    square, error = mean_square(unit.jacobian(point), probes, generator)
    missing = torch.full_like(state[:, 0], float("nan"))
    return {
        "state_rms": rms(state),
        "branch_over_skip": norm(branch) / norm(skip),
        "cosine": (direction(branch) * direction(skip)).sum(1),
        "sum_zeros": (branch + skip == 0).sum(1),
        "gradient_rms": missing if gradient is None else rms(by_sample(gradient, unit.batch_axis)),
        "jacobian_square": square,
        "jacobian_square_error": error,
        "effective_rank": effective_rank(state),
    }


def _exit_axis(path: Path, unit: Unit) -> int:
    return unit.batch_axis if path.exit_axis is None else path.exit_axis
