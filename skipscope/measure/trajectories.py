"""The path of a sample through a trunk: is it a straight line with equal steps?

Residual alignment (Li and Papyan, RA1) says so of trained residual networks. For the states h_0 ... h_L of one sample
in a stage, a run of states of one shape, with the steps d_l = h_l - h_(l-1):

line_shape       L / | sum_l d_l / |d_l| |: 1 for a straight line, about sqrt(L) for a random walk, infinite for steps
                 whose directions cancel. Steps of length zero have no direction: they are left out of L and of the sum
zero_steps       how many these are
step_variation   standard deviation / mean of |d_l|, 0 for equal steps; the deviation of the L steps themselves (their
                 squares divided by L)
first_component  share of the states' variance along their first principal component, 1 for a straight line
chord_ratio      sum_l |d_l| / |h_L - h_0|: the length of the path over the distance, 1 for a straight line that never
                 turns back
step_norm        |d_l|
cosine           of a step and the next one of the same stage
projection       states in two planes. `random`: a Gaussian 2 x n matrix with entries of variance 1/2, which keeps a
                 squared length in the mean, one matrix for all states of n numbers; `principal`: the first two
                 principal components of all states of all chosen samples, from their mean, one plane per stage
principal_share  of the variance of these states in the principal plane

All but the projections are NaN for a stage with fewer than two steps, `line_shape` also for fewer than two of length
above zero. A random plane can show a bent path as a straight one: read `line_shape` with the picture.

States are those of the model's own type; from there everything is in float64. Cost: a forward pass; for the principal
plane the Gram matrix of the samples' states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.positions import one_position
from skipscope.measure.descriptions import described
from skipscope.measure.selection import (
    Samples,
    Units,
    attributes,
    chosen_units,
    exit_axis,
    point_of,
    refuse_batch_statistics,
    sample_indices,
)
from skipscope.memory_limit import Memory, with_memory
from skipscope.numerics import normal, random_numbers
from skipscope.spectrum.orthonormal import fixed_signs
from skipscope.trace import Point, Trunk, Unit

if TYPE_CHECKING:
    import xarray

METRICS = ("line_shape", "step_variation", "first_component", "chord_ratio")
COLUMNS = 8192  # numbers of a state that are projected at a time
LARGEST_PLANE = 5000  # states or numbers, the fewer of the two: the size of a dense eigenproblem


@dataclass(frozen=True)
class State:
    """A state on the way through a trunk: the entry or the exit of a unit."""

    unit: Unit
    leaves: bool  # is it the unit's exit?

    @property
    def name(self) -> str:
        return f"exit of {self.unit.name}" if self.leaves else self.unit.name

    def at(self, point: Point) -> Tensor:
        """(B, ...)"""
        if not self.leaves:
            return point.entry(self.unit).detach().movedim(self.unit.batch_axis, 0)
        return point.exit(self.unit).detach().movedim(exit_axis(self.unit, self.unit), 0)


@with_memory
def trajectories(
    trunk: Trunk,
    x: Any,
    *,
    labels: Any = None,
    units: Units = None,
    samples: Samples = None,
    tokens: int | tuple[int, int] | None = None,
    projections: bool = True,
    seed: int = 0,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point; dimensions `stage`, `sample`, `step` and `state`.

    The states are the entries of the units, and exits where no chosen unit goes on from them, as the last one's.
    labels: the class of each sample of the batch, kept as coordinate `label`.
    units: names or indices, in their order; by default those that follow one another, none inside another.
    samples: how many of the first, or which of the batch; all by default.
    tokens: the path of one position (-1, or a pair of it with itself), for states of shape (tokens, channels); by
    default that of the whole state.
    projections: also the states in two planes; dimensions `plane`, `sample`, `state`, `axis`. seed: of the random one.
    """
    import xarray

    if units is not None and not list(units):
        raise InputError("units=[] names no unit; leave it out for all")
    tokens = one_position(tokens)
    refuse_batch_statistics(trunk.model)
    point = point_of(trunk, x)
    indices = sample_indices(point.batch, samples)
    classes = _labels(labels, point.batch, indices)
    stages = stages_of(trunk, point, units)
    paths = [[_flat(state, point, tokens) for state in states] for states in stages]
    _check_finite(stages, paths, point, indices)
    rows = [[_measured(path, index) for index in indices] for path in paths]
    data: dict[str, Any] = {
        name: (("stage", "sample"), numpy.array([[row[name] for row in of_stage] for of_stage in rows]))
        for name in (*METRICS, "zero_steps")
    }
    for name in ("step_norm", "cosine"):
        columns = [numpy.array([row[name] for row in of_stage]).reshape(len(indices), -1) for of_stage in rows]
        data[name] = (("sample", "step"), numpy.concatenate(columns, 1))
    shapes = [states[0].at(point).shape[1:] for states in stages]
    coordinates: dict[str, Any] = {
        "stage": list(range(1, len(stages) + 1)),
        "shape": ("stage", [" x ".join(map(str, shape if tokens is None else shape[1:])) for shape in shapes]),
        "sample": indices,
        "state": [state.name for states in stages for state in states],
        "state_stage": ("state", [stage for stage, states in enumerate(stages, 1) for _ in states]),
        "step": [state.name for states in stages for state in states[:-1]],
        "step_stage": ("step", [stage for stage, states in enumerate(stages, 1) for _ in states[:-1]]),
    }
    if classes is not None:
        coordinates["label"] = ("sample", classes)
    if projections:
        planes = [_planes(path, indices, seed) for path in paths]
        whole = torch.cat([plane for plane, _ in planes], 1)  # plane, state, sample, axis
        data["projection"] = (("plane", "sample", "state", "axis"), whole.transpose(1, 2).cpu().numpy())
        data["principal_share"] = (("stage",), numpy.array([share for _, share in planes]))
        coordinates |= {"plane": ["random", "principal"], "axis": ["first", "second"]}
    dataset = xarray.Dataset(
        data,
        coordinates,
        attributes(
            "trajectories",
            trunk,
            dtype=str(paths[0][0].dtype).removeprefix("torch."),
            computed_in="float64",
            deviation="of the steps themselves: squares divided by their number",
            tokens="all" if tokens is None else tokens,
            seed=seed,
        ),
    )
    return described(dataset)


# -- states


def stages_of(trunk: Trunk, point: Point, units: Units = None) -> list[list[State]]:
    """Runs of states of one shape. By default of the units that follow one another, none inside another."""
    chosen = chosen_units(
        trunk, [unit.index for stage in trunk.stages for unit in stage.units] if units is None else units
    )
    if [unit.index for unit in chosen] != sorted({unit.index for unit in chosen}):
        raise InputError(f"units: expected each once and in their order, got {', '.join(unit.name for unit in chosen)}")
    stages: list[list[State]] = []
    new = True
    for unit, after in zip(chosen, [*chosen[1:], None], strict=True):
        entry, exit_ = State(unit, leaves=False), State(unit, leaves=True)
        goes_on = after is not None and _goes_on(unit, after)
        for state in [entry] if goes_on else [entry, exit_]:
            if new or state.at(point).shape != stages[-1][-1].at(point).shape:
                stages.append([])
            stages[-1].append(state)
            new = False
        new = not goes_on
    return stages


def _goes_on(unit: Unit, after: Unit) -> bool:
    """Whether the second unit's entry continues the first one's exit. Units of one shape are in two stages where the
    second does not depend on the first, as a decoder's beside an encoder's."""
    apart = unit.stage != after.stage and unit.exit_shape == after.exit_shape
    return unit.exit_shape == after.entry_shape and not apart


def _flat(state: State, point: Point, tokens: int | None) -> Tensor:
    """(B, n) in the model's own type."""
    value = state.at(point)
    if tokens is None:
        return value.flatten(1)
    if value.dim() != 3:
        raise InputError(
            f"tokens={tokens}: expected states of shape (tokens, channels), that of {state.name} is "
            f"{tuple(value.shape[1:])}; leave tokens= out for the whole state"
        )
    if not -value.shape[1] <= tokens < value.shape[1]:
        raise InputError(f"tokens={tokens}: expected a position among the {value.shape[1]} of {state.name}")
    return value[:, tokens]


def _check_finite(
    stages: Sequence[Sequence[State]], paths: Sequence[Sequence[Tensor]], point: Point, indices: list[int]
) -> None:
    for states, path in zip(stages, paths, strict=True):
        for state, values in zip(states, path, strict=True):
            if not torch.isfinite(values[indices]).all():
                raise InputError(
                    f"the states of {state.unit.name} have NaN or infinite entries, first in "
                    f"{point.first_not_finite()}; check the weights and the batch"
                )


def _labels(labels: Any, batch: int, indices: Sequence[int]) -> list[Any] | None:
    if labels is None:
        return None
    values = numpy.asarray(labels.cpu() if isinstance(labels, Tensor) else labels).tolist()
    if len(values) != batch or not all(isinstance(value, int | str) for value in values):
        raise InputError(f"labels: expected {batch} numbers or names, one per sample of the batch, got {len(values)}")
    return [values[index] for index in indices]


# -- one path


def _measured(path: Sequence[Tensor], index: int) -> dict[str, Any]:
    """path: the states of one stage, (B, n) each. Of the sample at `index`."""
    states = torch.stack([state[index] for state in path]).double()  # L + 1, n
    steps = states.diff(dim=0)
    norms = steps.norm(dim=1)
    moving = norms > 0
    directions = steps[moving] / norms[moving, None]
    count = int(moving.sum())
    cosines = torch.full_like(norms, float("nan"))
    cosines[:-1] = (steps[:-1] * steps[1:]).sum(1) / (norms[:-1] * norms[1:])
    found: dict[str, Any] = dict.fromkeys(METRICS, float("nan"))
    if len(steps) >= 2:
        centred = states - states.mean(0)
        variances = torch.linalg.eigvalsh(centred @ centred.mT)
        found = {
            "line_shape": float(count / directions.sum(0).norm()) if count >= 2 else float("nan"),
            "step_variation": float(norms.std(correction=0) / norms.mean()),
            "first_component": float(variances[-1] / centred.square().sum()),
            "chord_ratio": float(norms.sum() / (states[-1] - states[0]).norm()),
        }
    return found | {
        "zero_steps": len(steps) - count,
        "step_norm": norms.tolist(),
        "cosine": cosines.tolist(),
    }


# -- planes


def _planes(path: Sequence[Tensor], indices: list[int], seed: int) -> tuple[Tensor, float]:
    """(plane, state, sample, axis) of one stage, and the share of variance in the principal plane."""
    n, rows = path[0].shape[1], len(path) * len(indices)
    if min(n, rows) > LARGEST_PLANE:
        raise InputError(
            f"the principal plane of {rows:,} states of {n:,} numbers is a dense eigenproblem of {min(n, rows):,}, "
            f"expected at most {LARGEST_PLANE:,}; choose fewer samples=, or projections=False"
        )
    numbers = random_numbers("random plane", seed, n)
    random = torch.zeros(rows, 2, dtype=torch.float64, device=path[0].device)
    gram = torch.zeros(rows, rows, dtype=torch.float64, device=path[0].device) if rows <= n else None
    parts = []
    for part in _parts(path, indices):
        random += part @ normal((part.shape[1], 2), numbers, device=part.device) / 2**0.5
        centred = part - part.mean(0)
        if gram is None:
            parts.append(centred)
        else:
            gram += centred @ centred.mT
    if gram is None:
        whole = torch.cat(parts, 1)
        principal, share = _principal(whole.mT @ whole, whole)
    else:
        principal, share = _principal(gram, None)
    principal = principal * fixed_signs(principal[None])[0]
    return torch.stack([random, principal]).reshape(2, len(path), len(indices), 2), share


def _parts(path: Sequence[Tensor], indices: list[int]) -> Iterator[Tensor]:
    """(states x samples, some columns) in float64."""
    for first in range(0, path[0].shape[1], COLUMNS):
        yield torch.cat([state[:, first : first + COLUMNS][indices] for state in path]).double()


def _principal(gram: Tensor, centred: Tensor | None) -> tuple[Tensor, float]:
    """The first two components of X = U S V^T: U S, with X X^T = U S^2 U^T; or X V, with X^T X = V S^2 V^T.

    gram: X X^T, or X^T X where X itself is given.
    """
    squares, vectors = torch.linalg.eigh(gram)
    squares, vectors = squares.flip(0).clamp_min(0), vectors.flip(1)
    components = (vectors * squares.sqrt())[:, :2] if centred is None else centred @ vectors[:, :2]
    # States of one number, and a single state, have one component.
    components = torch.nn.functional.pad(components, (0, 2 - components.shape[1]))
    return components, float(squares[:2].sum() / squares.sum())
