"""What is measured at a look. Each is one of the library's own measurements, at the weights that the model has now;
numbers of several samples become their median.

sizes           of each unit, from one forward and one backward pass (`ss.profile`): the size of the state and of the
                gradient at its entry, the branch over the skip, the gain of the gradient |dL/dx| / |dL/dy|, what
                differs between samples in the state and in the branch, the effective rank of the states
singular        the largest singular value of each unit's Jacobian (`ss.svd`)
stable_rank     of each weight matrix: |W|_F^2 / s_1^2, and s_1
alignment       of each unit with the next (`ss.alignment`): the coupling of their leading singular vectors, 0 where
                they share them, with its level by chance; the cosine of the first right singular vectors
conditioning    condition numbers of weights (`ss.conditioning`) and of the states at units' entries
sharpness       the largest eigenvalue of the Hessian of the loss (`ss.eigs`), with batch norms as in training, and what
                the rate can bear
streams         of units that mix several streams (`ss.streams`): what the product of the mixing matrices leaves of the
                differences between streams, and how much it can grow
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
import torch

from skipscope.errors import InputError, first_line
from skipscope.linear import Dense
from skipscope.linear.derivative import by_sample
from skipscope.measure import alignment, conditioning, profile, streams
from skipscope.measure.layers import acting_weights
from skipscope.measure.selection import labels
from skipscope.monitor.objective import Objective
from skipscope.monitor.sharpness import Rate, sharpness
from skipscope.spectrum import SVD, condition_number, svd
from skipscope.trace import Point, Trunk, Unit
from skipscope.trace.inputs import Inputs

if TYPE_CHECKING:
    import xarray

SETTLED = 20  # batches that a batch norm has to have seen: with the usual momentum, a tenth of its first values is left
VALUE_TOLERANCE = 0.01  # of singular values
DIRECTIONS = 3  # singular vectors whose coupling is measured
CHANCE_DRAWS = 2
SIZES = (
    *("state_rms", "state_spread", "branch_over_skip", "branch_spread", "cosine"),
    *("gradient_rms", "gradient_gain", "effective_rank"),
)


@dataclass
class Look:
    """The trunk at one moment of the training. samples: of the batch, for measures that take them one by one."""

    trunk: Trunk
    inputs: Inputs
    objective: Objective | None
    rate: Rate
    samples: int
    seed: int

    @cached_property
    def point(self) -> Point:
        try:
            return self.trunk.at(self.inputs)
        except (KeyError, AttributeError) as error:  # pruned, parametrized, a block removed
            raise InputError(
                f"the model has not the modules and weights any more that it was traced with ({first_line(error)}); "
                "make another monitor to go on"
            ) from error

    @cached_property
    def some(self) -> Point:
        """The point of the first samples; of all where the model can only run with all of them."""
        count = min(self.samples, self.point.batch)
        return self.point.take(range(count)) or self.point

    @property
    def finite(self) -> bool:
        states = self.point.states
        return all(bool(state.isfinite().all()) for state in states)

    @property
    def settled(self) -> bool:
        """Whether batch norms have seen enough to normalise as they do in training."""
        named = self.trunk.model.named_buffers()
        return all(int(count) >= SETTLED for name, count in named if name.endswith("num_batches_tracked"))


def sizes(look: Look) -> xarray.Dataset:
    import xarray

    names = labels(list(look.trunk.units))
    if not look.finite:  # nothing can be said of directions among numbers that are none
        missing = numpy.full(len(look.trunk.units), numpy.nan)
        found = xarray.Dataset(dict.fromkeys(SIZES, ("unit", missing)), names)
    else:
        found = profile(look.trunk, look.point, loss=look.objective, probes=0, seed=look.seed)
        found = _over_samples(found[list(SIZES)]).drop_attrs(deep=False)
    found["finite"], found["settled"] = look.finite, look.settled
    found["loss"] = _loss(look)
    return found


def _loss(look: Look) -> float:
    """At the monitor's batch, in evaluation mode."""
    if look.objective is None:
        return math.nan
    with torch.no_grad():
        return float(look.objective(look.point.output))


def singular(look: Look) -> xarray.Dataset:
    import xarray

    rows = []
    for unit in look.trunk.units:
        found = largest_value(unit, look)
        converged = bool(found.converged[:, 0].all())
        largest = float(numpy.median(found.S[:, 0].cpu().numpy()))  # torch's is the lower of two in the middle
        rows.append((largest, float(found.residuals[:, 0].max()), converged))
    columns = zip(("value", "residual", "converged"), zip(*rows, strict=True), strict=True)
    data = {name: ("unit", [*column]) for name, column in columns}
    return xarray.Dataset(data, labels(list(look.trunk.units)), {"samples": look.some.batch})


def largest_value(unit: Unit, look: Look, max_products: int | None = None) -> SVD:
    return svd(unit.jacobian(look.some), k=1, tol=VALUE_TOLERANCE, max_products=max_products, seed=look.seed)


def stable_rank(look: Look) -> xarray.Dataset:
    import xarray

    weights = trained_weights(look)
    largest, ranks, converged = [], [], []
    for weight in weights.values():
        found = leading_value(weight, look.seed)
        top = float(found.S[0, 0])
        largest.append(top)
        square = float(weight.detach().float().double().square().sum())
        ranks.append(square / top**2 if top > 0 else math.nan)
        converged.append(bool(found.converged[0, 0]))
    data = {"stable_rank": ("weight", ranks), "value": ("weight", largest), "converged": ("weight", converged)}
    return xarray.Dataset(data, {"weight": [*weights], "unit_of_weight": ("weight", _units_of(look, weights))})


def leading_value(weight: torch.Tensor, seed: int) -> SVD:
    return svd(Dense(weight.detach().float().flatten(1)), k=1, tol=1e-3, seed=seed)


def neighbours(look: Look) -> xarray.Dataset:
    import xarray

    units = list(look.trunk.units)
    found = alignment(
        look.trunk, look.some, k=DIRECTIONS, grids=False, chance=CHANCE_DRAWS, tol=VALUE_TOLERANCE, seed=look.seed
    )
    pairs = [found.isel(unit=place, other=place + 1) for place in range(len(units) - 1)]
    keys = {"coupling": "coupling_ujv", "chance": "chance", "cosine": "right_cosine"}
    columns: dict[str, list[float]] = {key: [] for key in keys}
    for pair in pairs:
        for key, variable in keys.items():
            values = pair[variable].isel(row=0) if "row" in pair[variable].dims else pair[variable]
            columns[key].append(float(values.median()))
    first = xarray.Dataset(coords=labels(units[:-1]))
    about = {"samples": look.some.batch, "k": DIRECTIONS}
    data = {key: ("unit", values) for key, values in columns.items()}
    return xarray.Dataset(data, {**first.coords, "next": ("unit", [unit.name for unit in units[1:]])}, about)


def conditions(look: Look) -> xarray.Dataset:
    import xarray

    found = condition_of_weights(look)
    weights = found["weight_condition"].sel(reduction="max", drop=True)
    names = [str(name) for name in weights["weight"].values]
    states = [condition_of_state(look, unit) for unit in look.trunk.units]
    return xarray.Dataset(
        {"weight_condition": ("weight", weights.values), "state_condition": ("unit", states)},
        {
            **labels(list(look.trunk.units)),
            "weight": names,
            "unit_of_weight": ("weight", _units_of(look, dict.fromkeys(names))),
        },
    )


def condition_of_weights(look: Look, names: list[str] | None = None) -> xarray.Dataset:
    """names: of weights, all by default."""
    return conditioning(look.trunk.model, None, layers=names, states=False)


def condition_of_state(look: Look, unit: Unit) -> float:
    return float(condition_number(by_sample(look.point.entry(unit), unit.batch_axis)).value)


def sharpness_of(look: Look) -> xarray.Dataset:
    import xarray

    assert look.objective is not None
    found = sharpness(look.trunk, look.inputs, look.objective, look.seed)
    rate = look.rate if found.as_trained else look.rate._replace(limit=math.nan)
    return xarray.Dataset({**found._asdict(), **rate._asdict()})


def streams_of(look: Look) -> xarray.Dataset:
    found = streams(look.trunk, look.point)
    return _over_samples(found[["product_second_value", "product_row_gain", "branch_share"]]).drop_attrs(deep=False)


def _over_samples(data: xarray.Dataset) -> xarray.Dataset:
    """Of the samples that have a number: one without a gradient has no gain."""
    return data.median("sample", skipna=True, keep_attrs=True) if "sample" in data.dims else data


def trained_weights(look: Look) -> dict[str, torch.Tensor]:
    found = acting_weights(look.trunk.model)
    return {name: weight for name, weight in found.items() if weight.numel() and weight.is_floating_point()}


def _units_of(look: Look, weights: Mapping[str, Any]) -> list[str]:
    """The unit that each weight belongs to, by the module that holds it; empty for those of none."""
    owners: dict[str, str] = {}
    for unit in look.trunk.units:
        for name in unit.parameter_names:
            owners.setdefault(name.partition(".parametrizations.")[0].rpartition(".")[0] or name, unit.name)
            owners.setdefault(name, unit.name)
    return [owners.get(name, owners.get(name.rpartition(".")[0], "")) for name in weights]


@dataclass(frozen=True)
class Measure:
    name: str
    measure: Callable[[Look], xarray.Dataset]
    needs: str = ""  # "loss": a loss; "streams": units that mix streams; "pairs": two units


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("sizes", sizes),
        Measure("stable_rank", stable_rank),
        Measure("streams", streams_of, "streams"),
        Measure("conditioning", conditions),
        Measure("singular", singular),
        Measure("sharpness", sharpness_of, "loss"),
        Measure("alignment", neighbours, "pairs"),
    )
}


def lacking(measure: Measure, trunk: Trunk, objective: Objective | None) -> str:
    """Why a measure cannot be made of this model; empty where it can."""
    if measure.needs == "loss" and objective is None:
        return "it needs the loss of the training; pass targets= or loss="
    if measure.needs == "loss" and not any(weight.requires_grad for weight in trunk.model.parameters()):
        return "it needs weights that are trained, and none of the model's requires gradients"
    if measure.needs == "streams" and not any(unit.kind == "streams" for unit in trunk.units):
        return "no unit mixes several streams"
    if measure.needs == "pairs" and len(trunk.units) < 2:
        return "there is one unit and no neighbour"
    return ""
