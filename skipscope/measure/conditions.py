"""Condition numbers of weights and of states: largest over smallest singular value.

A weight of two dimensions is a matrix. A convolution's is one as well, Cout x (Cin kh kw) (`matrix`), and has a
condition number for every mode of its higher-order SVD, the largest of which is `hosvd`. A state is taken over the
whole batch as a matrix of channels x all other places, C x (N h w). Each number comes with a status: finite,
numerically infinite (rounding hides the smallest value), infinite (a slice is zero throughout) or overflow.

Cost: a dense SVD per weight and mode, 2 M m^2 operations for an m x M unfolding, M > m; one per state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.measure.selection import chosen_units, point_of
from skipscope.spectrum import condition_number
from skipscope.trace import Trunk

if TYPE_CHECKING:
    import xarray


def weight_conditions(model: nn.Module, *, parameters: Sequence[str] | None = None) -> xarray.Dataset:
    """Of every parameter with two dimensions or more, or of those that are named; dimension `parameter`.

    Variables `matrix` and `hosvd`, each with `_status` and `_rank` (of the mode that decides). Parameters that are
    empty or not real are named in the attribute `left_out`.
    """
    import xarray

    weights = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.dim() >= 2 and (parameters is None or name in parameters)
    }
    usable = {name: weight for name, weight in weights.items() if weight.numel() and weight.is_floating_point()}
    if not usable:
        raise InputError(f"{type(model).__name__} has no weights with two dimensions or more")
    data: dict[str, Any] = {}
    for kind, reduce in (("matrix", "matrix"), ("hosvd", "max")):
        found = [condition_number(weight, reduce=reduce) for weight in usable.values()]  # type: ignore[call-overload]
        data |= _columns(kind, "parameter", found)
    return xarray.Dataset(
        data,
        {
            "parameter": list(usable),
            "shape": ("parameter", [" x ".join(map(str, weight.shape)) for weight in usable.values()]),
        },
        {"measure": "weight_conditions", "left_out": "; ".join(name for name in weights if name not in usable)},
    )


def state_conditions(trunk: Trunk, x: Any) -> xarray.Dataset:
    """Of every unit's entry and of the last exit, at a batch of model inputs or a point; dimension `state`."""
    units, point = chosen_units(trunk, None), point_of(trunk, x)
    names = [*(unit.name for unit in units), f"exit of {units[-1].name}"]
    states = [point.entry(unit).movedim(unit.batch_axis, 0) for unit in units]
    last = units[-1]
    states.append(point.exit(last).movedim(last.batch_axis if last.exit_axis is None else last.exit_axis, 0))
    return state_conditions_of(dict(zip(names, states, strict=True))).assign_attrs(mode="eval")


def state_conditions_of(states: Mapping[str, Tensor]) -> xarray.Dataset:
    """The same for states by name, samples along axis 0: (N, C), (N, tokens, C) or (N, C, h, w).

    Their last bits are taken as noise of their own floating type.
    """
    import xarray

    found = [
        condition_number(
            state.detach(),
            reduce="channel",
            channel=-1 if state.dim() <= 3 else 1,
            precision=torch.float64 if state.dtype == torch.float64 else torch.float32,
        )
        for state in states.values()
    ]
    return xarray.Dataset(
        _columns("condition", "state", found), {"state": list(states)}, {"measure": "state_conditions"}
    )


def _columns(name: str, dimension: str, found: list[Any]) -> dict[str, Any]:
    ranks = [numpy.nan if condition.rank is None else condition.rank for condition in found]
    return {
        name: (dimension, numpy.array([condition.value for condition in found])),
        f"{name}_status": (dimension, numpy.array([condition.status for condition in found], dtype=object)),
        f"{name}_rank": (dimension, numpy.array(ranks, dtype=float)),
    }
