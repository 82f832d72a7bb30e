"""The profile of a trunk: cheap numbers for every unit, on a model of any size.

state_rms            |h| / sqrt(n) of the unit's entry
branch_over_skip     |F(h)| / |S(h)|
cosine               <F(h), S(h)> / (|F(h)| |S(h)|)
sum_zeros            entries of S(h) + F(h) that are exactly zero: a ReLU after the sum has the derivative 0 there by
                     convention
state_spread         |h - mean of h| / |h|, the mean over the samples: 0 where all samples have come to one state
branch_spread        |F(h) - mean of F| / |S(h)|: 0 where the branch adds the same to every sample
gradient_rms         |dL/dh| / sqrt(n) at the unit's entry
gradient_gain        |dL/dh| / |dL/dy|, y the unit's exit: what the unit makes of the size of a gradient
jacobian_square      |J|_F^2 / n, the mean square of the unit's singular values, from random probes:
                     E |J z|^2 = |J|_F^2 for signs z; `jacobian_square_error` is the standard error of the mean.
                     Where an operation has no forward mode and J z would take all rows, E |J^T u|^2, which is the same
effective_rank       exp(entropy) of the squared singular values of the batch of entries, samples x n: between 1 and
                     the number of samples

`chain_profile` has those that need no skip, for a chain of functions such as a plain network's blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear import Jacobian, Operator
from skipscope.linear.derivative import attempt, by_sample
from skipscope.measure.descriptions import described
from skipscope.measure.layers import float_tensors
from skipscope.measure.selection import Units, attributes, chosen_units, exit_axis, labels, point_of
from skipscope.memory_limit import Memory, with_memory
from skipscope.numerics import measuring, normal, random_numbers, signs
from skipscope.trace import Point, Trunk, Unit
from skipscope.trace.freshness import asked_once

if TYPE_CHECKING:
    import xarray


@asked_once()
@with_memory
def profile(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    loss: Callable[[Any], Tensor] | None = None,
    probes: int = 8,
    seed: int = 0,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Measure units (names or indices, all by default) at a batch of model inputs or a point; dimensions `unit` and
    `sample`.

    probes: random vectors for `jacobian_square`; 0 leaves it out, and with it most of the time.

    loss: a scalar function of the model's output for the gradients; without one they are those of the output along a
    random direction of about unit length per sample, which says how gradients travel, not how large a loss makes them.
    """
    if probes < 0 or probes == 1:
        raise InputError(f"probes={probes}: expected 0, or at least 2 for an error estimate")
    chosen, point = chosen_units(trunk, units), point_of(trunk, x)
    generator = random_numbers("probes", seed)
    found = attempt(lambda: point.gradients(loss or along_random_direction(point.batch, generator), exits=True))
    gradient = "of the given loss" if loss else "of the output along a random direction of about unit length"
    if isinstance(found, str):  # an operation somewhere has no derivative: the units that have one are measured
        gradient, found = f"not measured: {found}", [*[None] * 2 * len(trunk.units)]
    back = list(zip(found[: len(trunk.units)], found[len(trunk.units) :], strict=True))
    rows = [_unit(unit, point, back[unit.index], probes, seed) for unit in chosen]
    about = attributes(
        "profile",
        trunk,
        gradient=gradient,
        probes=probes,
        seed=seed,
        replay_error=float("nan") if trunk.replay_error is None else trunk.replay_error,
    )
    return _dataset(rows, labels(chosen), about)


def _unit(
    unit: Unit, point: Point, gradients: tuple[Tensor | None, Tensor | None], probes: int, seed: int
) -> dict[str, Tensor]:
    """gradients: at the entry and at the exit."""
    entry = point.entry(unit)
    state = by_sample(entry, unit.batch_axis)
    with torch.no_grad():
        branch = by_sample(unit.branch.bound(point)(entry), exit_axis(unit, unit.branch))
        skip = by_sample(unit.skip.bound(point)(entry), exit_axis(unit, unit.skip))
    missing = torch.full_like(state[:, 0], float("nan"))
    arriving, sent = gradients
    gradient = None if arriving is None else by_sample(arriving, unit.batch_axis)
    found = {
        "state_rms": rms(state),
        "state_spread": norm(from_mean(state)) / norm(state),
        "branch_over_skip": norm(branch) / norm(skip),
        "branch_spread": norm(from_mean(branch)) / norm(skip),
        "cosine": (direction(branch) * direction(skip)).sum(1),
        "sum_zeros": (branch + skip == 0).sum(1),
        "gradient_rms": missing if gradient is None else rms(gradient),
        "gradient_gain": missing
        if gradient is None or sent is None
        else norm(gradient) / norm(by_sample(sent, exit_axis(unit, unit))),
    }
    if not probes:
        return found | {"effective_rank": effective_rank(state)}
    # Probes of its own: what is drawn for a unit does not depend on which others are looked at.
    generator = random_numbers("probes", seed, unit.index)
    return found | _square_and_rank(unit.jacobian(point), state, probes, generator)


def chain(blocks: Mapping[str, Callable[[Tensor], Tensor]], state: Tensor) -> list[Tensor]:
    """The entry of every block, then the last exit."""
    passed = [state]
    for block in blocks.values():
        passed.append(block(passed[-1]))
    return passed


def chain_profile(
    blocks: Mapping[str, Callable[[Tensor], Tensor]],
    head: Callable[[Tensor], Tensor],
    state: Tensor,
    *,
    probes: int = 8,
    seed: int = 0,
) -> xarray.Dataset:
    """Measure every block; `state` is the entry of the first, samples along axis 0; `head` makes the output.

    Gradients are those of the output along a random direction, the one that `profile` draws for the same seed.
    """
    with measuring(), torch.enable_grad():
        passed = chain(blocks, state.detach().requires_grad_())
        scalar = along_random_direction(state.shape[0], random_numbers("probes", seed))(head(passed[-1]))
        gradients = torch.autograd.grad(scalar, passed)
    rows = []
    for index, ((name, block), entry, gradient) in enumerate(zip(blocks.items(), passed, gradients, strict=False)):
        own = random_numbers("probes", seed, index)  # as `profile` draws them for a unit
        flat, arriving, sent = (by_sample(value, 0) for value in (entry, gradient, gradients[index + 1]))
        measured = _square_and_rank(Jacobian(block, entry, name=name), flat, probes, own)
        rows.append(
            {
                "state_rms": rms(flat),
                "state_spread": norm(from_mean(flat)) / norm(flat),
                "gradient_rms": rms(arriving),
                "gradient_gain": norm(arriving) / norm(sent),
                **measured,
            }
        )
    return _dataset(rows, {"unit": list(blocks)}, attributes("profile", probes=probes, seed=seed))


def _square_and_rank(J: Operator, state: Tensor, probes: int, generator: torch.Generator) -> dict[str, Tensor]:
    square, error = mean_square(J, probes, generator)
    return {"jacobian_square": square, "jacobian_square_error": error, "effective_rank": effective_rank(state)}


def _dataset(
    rows: Sequence[Mapping[str, Tensor]], coordinates: Mapping[str, Any], about: Mapping[str, Any]
) -> xarray.Dataset:
    import xarray

    columns = {key: torch.stack([row[key] for row in rows]).cpu().numpy() for key in rows[0]}
    data = {key: (("unit", "sample")[: array.ndim], array) for key, array in columns.items()}
    return described(xarray.Dataset(data, coordinates, about))


# -- numbers of states, and of operators from random probes


def rms(state: Tensor) -> Tensor:
    """|h| / sqrt(n) of every sample: (B, n) -> (B,)."""
    return norm(state) / state.shape[1] ** 0.5


def norm(state: Tensor) -> Tensor:
    """|h| of every sample: (B, n) -> (B,). Squares of numbers near 1e-200 or 1e200 would be none."""
    largest = _largest(state)
    return largest[:, 0] * (state / largest).norm(dim=1)


def from_mean(state: Tensor) -> Tensor:
    """What every sample has of its own: (B, n); NaN for a single one."""
    return state - state.mean(0) if len(state) > 1 else torch.full_like(state, float("nan"))


def direction(state: Tensor) -> Tensor:
    """h / |h| of every sample: (B, n); NaN for a state of zeros."""
    state = state / _largest(state)
    return state / state.norm(dim=1, keepdim=True)


def _largest(state: Tensor) -> Tensor:
    """(B, 1): the largest entry in magnitude; 1 for a state of zeros."""
    largest = state.abs().amax(1, keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


def effective_rank(state: Tensor) -> Tensor:
    """exp of the entropy of the squared singular values of (B, n), from the Gram matrix of the samples."""
    state = state / _largest(state).amax()
    squares = torch.linalg.eigvalsh(state @ state.mT).clamp_min(0)
    shares = squares / squares.sum()
    return torch.exp(torch.special.entr(shares).sum())


def mean_square(J: Operator, probes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """|J|_F^2 / n and its standard error, per sample: E |J z|^2 = |J|_F^2 for signs z.

    A push costs a pass in forward mode. Where the first one would take all m rows of J, by a backward pass each, and
    there are fewer probes than rows, the probes are pulled back instead: E |J^T u|^2 = |J|_F^2 for m random signs u.
    """
    batch, m, n = J.shape
    pull = J.pushes_take_rows and probes < m
    vectors = signs((batch, m if pull else n, probes), generator).to(J.device, J.dtype)
    products = J.rmatmat(vectors) if pull else J.matmat(vectors)
    squares = products.double().square().sum(1) / n  # B, probes
    return squares.mean(1), squares.std(1) / probes**0.5


def along_random_direction(batch: int, generator: torch.Generator) -> Callable[[Any], Tensor]:
    """A scalar of a model's output: its product with a random direction of about unit length per sample."""

    def scalar(output: Any) -> Tensor:
        main = next((leaf for leaf in float_tensors(output) if leaf.requires_grad), None)
        if main is None:
            raise InputError("the model's output has no float tensor that depends on its states; pass loss=")
        direction = normal(main.shape, generator).to(main)
        return (main * direction).sum() / (main.numel() / batch) ** 0.5

    return scalar
