"""The profile of a trunk: cheap numbers for every unit, on a model of any size.

state_rms            |h| / sqrt(n) of the unit's entry
branch_over_skip     |F(h)| / |S(h)|
cosine               <F(h), S(h)> / (|F(h)| |S(h)|)
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
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.linear import Operator
from skipscope.trace import Point, Trunk, Unit
from skipscope.trace.trunk import Path

if TYPE_CHECKING:
    import xarray


def profile(
    trunk: Trunk, x: Any, *, loss: Callable[[Any], Tensor] | None = None, probes: int = 8, seed: int = 0
) -> xarray.Dataset:
    """Measure every unit at a batch of model inputs or a point; dimensions `unit` and `sample`.

    loss: a scalar function of the model's output for the gradients; without one they are those of the output along a
    random direction of unit length per sample, which says how gradients travel but not how large a loss makes them.
    """
    import xarray

    if probes < 2:
        raise InputError(f"probes={probes}: at least 2 are needed for an error estimate")
    if not trunk.units:
        raise InputError(f"{type(trunk.model).__name__} has no residual units to measure")
    point = x if isinstance(x, Point) else trunk.at(x)
    generator = torch.Generator("cpu").manual_seed(seed)
    gradients = point.gradients(loss or _along_random_direction(point.batch, generator))
    rows = [
        _unit(unit, point, gradient, probes, generator) for unit, gradient in zip(trunk.units, gradients, strict=False)
    ]
    columns = {key: torch.stack([row[key] for row in rows]).cpu().numpy() for key in rows[0]}
    data = {key: (("unit", "sample") if array.ndim == 2 else ("unit",), array) for key, array in columns.items()}
    return xarray.Dataset(
        data,
        coords={
            "unit": [unit.name for unit in trunk.units],
            "skip": ("unit", [unit.kind for unit in trunk.units]),
            "stage": ("unit", [-1 if unit.stage is None else unit.stage for unit in trunk.units]),
        },
        attrs={
            "measure": "profile",
            "mode": "eval",
            "gradient": "of the given loss" if loss else "of the output along a random direction of unit length",
            "probes": probes,
            "seed": seed,
            "replay_error": float("nan") if trunk.replay_error is None else trunk.replay_error,
            "notes": "; ".join(trunk.notes),
        },
    )


def _unit(
    unit: Unit, point: Point, gradient: Tensor | None, probes: int, generator: torch.Generator
) -> dict[str, Tensor]:
    entry = point.entry(unit)
    state = _samples(entry, unit.batch_axis)
    with torch.no_grad():
        branch = _samples(unit.branch.bound(point)(entry), _exit_axis(unit.branch, unit))
        skip = _samples(unit.skip.bound(point)(entry), _exit_axis(unit.skip, unit))
    square, error = _mean_square(unit.jacobian(point), probes, generator)  # type: ignore[attr-defined]
    missing = torch.full_like(state[:, 0], float("nan"))
    return {
        "state_rms": _rms(state),
        "branch_over_skip": branch.norm(dim=1) / skip.norm(dim=1),
        "cosine": (branch * skip).sum(1) / (branch.norm(dim=1) * skip.norm(dim=1)),
        "gradient_rms": missing if gradient is None else _rms(_samples(gradient, unit.batch_axis)),
        "jacobian_square": square,
        "jacobian_square_error": error,
        "effective_rank": _effective_rank(state),
    }


def _exit_axis(path: Path, unit: Unit) -> int:
    return unit.batch_axis if path.exit_axis is None else path.exit_axis


def _mean_square(J: Operator, probes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """|J|_F^2 / n and its standard error, per sample."""
    batch, _, n = J.shape
    signs = torch.randint(0, 2, (batch, n, probes), generator=generator, device="cpu").mul(2).sub(1).to(J.dtype)
    squares = J.matmat(signs.to(J.device)).double().square().sum(1) / n  # B, probes
    return squares.mean(1), squares.std(1) / probes**0.5


def _effective_rank(state: Tensor) -> Tensor:
    """exp of the entropy of the squared singular values, from the Gram matrix of the samples."""
    squares = torch.linalg.eigvalsh(state @ state.mT).clamp_min(0)
    shares = squares / squares.sum()
    return torch.exp(torch.special.entr(shares).sum())


def _samples(tensor: Tensor, axis: int) -> Tensor:
    """(B, n) in float64."""
    return tensor.detach().movedim(axis, 0).flatten(1).double()


def _rms(state: Tensor) -> Tensor:
    return state.square().mean(1).sqrt()


def _along_random_direction(batch: int, generator: torch.Generator) -> Callable[[Any], Tensor]:
    def scalar(output: Any) -> Tensor:
        leaves = [
            t for t in pytree.tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point() and t.requires_grad
        ]
        if not leaves:
            raise InputError("the model's output has no float tensor that depends on its states; pass loss=")
        main = leaves[0]
        direction = torch.randn(main.shape, generator=generator, dtype=torch.float64, device="cpu").to(main)
        return (main * direction).sum() / (main.numel() / batch) ** 0.5

    return scalar
