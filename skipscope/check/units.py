"""The spectra of the residual units before training: two numbers for each, from products with random signs alone.

With J the Jacobian of a unit, one matrix for every sample, and n = min(in, out) singular values each:

gain         log10 of |J|_F / sqrt(n), the root mean square of the singular values of all samples
spread       n tr((J^T J)^2) / tr(J^T J)^2 - 1, traces as means over the samples: the variance of the squared singular
             values over the square of their mean. 0 for an isometry, 1 for a large square matrix of independent normal
             numbers, about 2.5 for a layer with random weights, batch norm and ReLU
branch_gain  as gain, of the branch alone
branch_end   names of the last weights of the branch, with commas between: those that a factor on it can be put into
gain_error, spread_error  standard errors of the mean over the signs, to first order

E |J z|^2 = tr(J^T J) and E |J^T J z|^2 = tr((J^T J)^2) for signs z. Where the factors of a product of square matrices
are free of one another, as large random ones are, the mean square of the singular values of the product is the product
of theirs and its spread is the sum of theirs (Pennington, Schoenholz, Ganguli: Resurrecting the sigmoid in deep
learning through dynamical isometry, NeurIPS 2017): the sum says how far a deep network is from an isometry. For units
of one network, which are not free, it is a guide.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from skipscope.check.signals import SMALLEST
from skipscope.errors import InputError
from skipscope.linear import Operator
from skipscope.measure.selection import labels
from skipscope.numerics import random_numbers, signs
from skipscope.trace import Point, Unit, trace
from skipscope.trace.export import in_full_precision
from skipscope.trace.graph_trunk import GraphUnit
from skipscope.trace.inputs import Inputs
from skipscope.trace.naming import parameters_read
from skipscope.trace.running_statistics import copied, take_batch_statistics
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray

PROBES = 8
SAMPLES = 8  # of the batch, at most; batch norms see all of it


class NoUnitsError(InputError):
    """A trace found no residual units, nor any that only cannot be measured."""


def spectra_of_units(model: nn.Module, x: Any, seed: int = 0) -> xarray.Dataset:
    """Gain and spread of every residual unit along the trunk (one inside another is part of that), at a batch.

    Batch norms have the statistics of the batch, held fixed: the linearisation is that of a step of training but for
    the way in which the statistics depend on the samples. It is made on a copy of the model, which itself stays as it
    is. An InputError or a TraceError says why there is nothing to measure: no units (a NoUnitsError), a model that
    cannot be copied or traced, states that are not finite, an operation without a derivative.
    """
    import xarray

    model = unwrapped(model)
    model, inputs, _ = in_full_precision(copied(model), Inputs.of(model, x))
    inputs = inputs.map(lambda tensor: tensor.detach().clone())
    take_batch_statistics(model, inputs)
    trunk = trace(model, inputs)
    units = [unit for stage in trunk.stages for unit in stage.units]
    if not units:
        why = "".join(f"; {left.where or 'a sum'} is none: {left.reason}" for left in trunk.left_out[:1])
        unmeasurable = any(left.kind == "unmeasurable" for left in trunk.left_out)
        error = InputError if unmeasurable else NoUnitsError
        raise error(f"{type(model).__name__} has no residual units{' to measure' if unmeasurable else ''}{why}")
    whole = trunk.at(inputs)
    point = whole.take(range(min(SAMPLES, whole.batch))) or whole  # a graph may hold for the whole batch alone
    generator = random_numbers("units", seed)
    rows = [_unit(unit, point, generator) for unit in units]
    return xarray.Dataset(
        {name: ("unit", [row[name] for row in rows]) for name in rows[0]},
        coords=labels(units),
        attrs={
            "measure": "check_units",
            "mode": "batch norms with the statistics of the batch, held fixed; dropout off",
            "samples": point.batch,
            "probes": PROBES,
            "seed": seed,
            "notes": "; ".join(trunk.notes),
        },
    )


def _unit(unit: Unit, point: Point, generator: torch.Generator) -> dict[str, Any]:
    J: Operator = unit.jacobian(point)
    branch: Operator = unit.jacobian(point, of="branch")
    batch, _, size = J.shape
    vectors = signs((batch, size, PROBES), generator, torch.int8).to(J.device, J.dtype)
    return {
        **moments(J, vectors),
        "branch_gain": _gain(branch, _squares(branch.matmat(vectors))),
        "branch_end": ",".join(_last_weights(unit)),
    }


def _last_weights(unit: Unit) -> list[str]:
    """Going back from each term of the sum but the skip, the first weights on every way."""
    if not isinstance(unit, GraphUnit):
        raise TypeError(f"{unit.name}: expected a unit of a graph, got {type(unit).__name__}")
    region, structure = unit.part.region, unit.trunk.structure
    inside = set(structure.branch_nodes(region))
    waiting = [term for term in region.terms if term is not region.skip]
    found: dict[str, None] = {}
    seen = set()
    while waiting:
        node = waiting.pop()
        if node in seen or node not in inside:
            continue
        seen.add(node)
        weights = parameters_read(structure.program, structure.flow, node)
        found |= dict.fromkeys(weights)
        waiting += [] if weights else node.all_input_nodes
    return sorted(found)


def moments(J: Operator, vectors: Tensor) -> dict[str, float]:
    """gain and spread with their errors; vectors: random signs (B, in, probes)."""
    pushed = J.matmat(vectors)
    first, second = _squares(pushed), _squares(J.rmatmat(pushed))  # probes
    mean = float(first.mean())
    if mean == 0:
        return {"gain": math.log10(SMALLEST), "gain_error": 0.0, "spread": math.nan, "spread_error": math.nan}
    ratio = min(J.shape[1:]) * float(second.mean()) / mean**2
    relative = first / mean
    return {
        "gain": _gain(J, first),
        "gain_error": _error(relative) / (2 * math.log(10)),
        "spread": ratio - 1,
        "spread_error": ratio * _error(second / second.mean() - 2 * relative),
    }


def _squares(vectors: Tensor) -> Tensor:
    """(B, n, probes) -> (probes,): the mean over the samples."""
    return torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64).square().mean(0)


def _gain(J: Operator, squares: Tensor) -> float:
    root = math.sqrt(float(squares.mean()) / min(J.shape[1:]))
    return math.log10(max(root, SMALLEST))


def _error(values: Tensor) -> float:
    return float(values.std()) / math.sqrt(len(values))
