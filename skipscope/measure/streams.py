"""Several residual streams: how a trunk of hyper-connections mixes them.

A unit of n streams computes x' = H x + (branch), where the n x n matrix H may depend on the state. Products of many
such matrices grow or make all streams equal, unless each is close to doubly stochastic. Of the matrix of a unit at a
sample, largest over the positions (tokens) that have one each:

sinkhorn_residual        largest |row sum - 1| and |column sum - 1|: 0 for a doubly stochastic matrix
row_gain, column_gain    largest sum of |entries| of a row (what a stream can grow to) and of a column (a gradient)
product_row_gain, product_column_gain    the same of the product of the matrices of all units up to this one
product_second_value     second largest singular value of that product: 0 where all streams have become one
product_dobrushin        largest distance of two rows of it, half the sum of |differences|: 0 where all rows are equal,
                         1 at most for rows that sum up to 1
branch_share             |branch| / (|branch| + |skip|)

The product is that of the mixing matrices alone, at the states that the batch has. How a change of a state moves the
matrices themselves is in the Jacobian of the unit (`unit.jacobian(x)`), which is exact. Everything is computed in
float64 from the model's own states. Cost: a forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.derivative import by_sample
from skipscope.measure.descriptions import described
from skipscope.measure.selection import Units, attributes, chosen_units, exit_axis, labels, point_of
from skipscope.memory_limit import Memory, with_memory
from skipscope.trace import Point, Trunk, Unit

if TYPE_CHECKING:
    import xarray

OF_MATRIX = ("sinkhorn_residual", "row_gain", "column_gain")
OF_PRODUCT = ("product_row_gain", "product_column_gain", "product_second_value", "product_dobrushin")


@with_memory
def streams(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Measure the units that mix streams (all by default) at a batch of model inputs or a point; dimensions `unit` and
    `sample`."""
    import xarray

    mixing = [unit for unit in chosen_units(trunk, units) if unit.kind == "streams"]
    if not mixing:
        kinds = ", ".join(sorted({unit.kind for unit in trunk.units}))
        raise InputError(
            f"no unit of {type(trunk.model).__name__} mixes several streams; its units have skips: {kinds}"
        )
    point = point_of(trunk, x)
    rows: list[dict[str, Tensor]] = []
    product: Tensor | None = None
    for unit in mixing:
        matrix = _matrices(unit, point)
        if product is not None and product.shape != matrix.shape:
            raise InputError(
                f"{unit.name} has mixing matrices of shape {tuple(matrix.shape[1:])}, and the unit before it of shape "
                f"{tuple(product.shape[1:])}: there is no product of the two; choose units of one kind with units=[...]"
            )
        product = matrix if product is None else matrix @ product
        rows.append({**_of_matrix(matrix), **_of_product(product), "branch_share": _branch_share(unit, point)})
    values = {
        name: (("unit", "sample"), torch.stack([row[name] for row in rows]).cpu().numpy())
        for name in (*OF_MATRIX, *OF_PRODUCT, "branch_share")
    }
    about = attributes("streams", trunk, streams=int(product.shape[-1]) if product is not None else 0)
    return described(xarray.Dataset(values, {**labels(mixing), "sample": range(point.batch)}, about))


def _matrices(unit: Unit, point: Point) -> Tensor:
    """(samples, positions, streams, streams), in float64."""
    mix = unit.mix(point).detach().double()
    if mix.dim() < 2 or mix.shape[-1] != mix.shape[-2]:
        raise InputError(f"{unit.name}: expected a square matrix that mixes streams, got shape {tuple(mix.shape)}")
    if mix.dim() == 2:  # weights: the same at every sample
        return mix.expand(point.batch, 1, *mix.shape)
    return mix.reshape(point.batch, -1, *mix.shape[-2:])


def _of_matrix(matrix: Tensor) -> dict[str, Tensor]:
    rows, columns = matrix.sum(-1), matrix.sum(-2)
    away = torch.maximum((rows - 1).abs().amax(-1), (columns - 1).abs().amax(-1))
    return {"sinkhorn_residual": away.amax(1), "row_gain": _gain(matrix, -1), "column_gain": _gain(matrix, -2)}


def _of_product(product: Tensor) -> dict[str, Tensor]:
    values = torch.linalg.svdvals(product)
    second = values[..., 1] if values.shape[-1] > 1 else torch.zeros_like(values[..., 0])
    distances = (product[..., :, None, :] - product[..., None, :, :]).abs().sum(-1) / 2
    return {
        "product_row_gain": _gain(product, -1),
        "product_column_gain": _gain(product, -2),
        "product_second_value": second.amax(1),
        "product_dobrushin": distances.flatten(2).amax((1, 2)),
    }


def _gain(matrix: Tensor, axis: int) -> Tensor:
    return matrix.abs().sum(axis).amax((1, 2))


def _branch_share(unit: Unit, point: Point) -> Tensor:
    entry = point.entry(unit)
    with torch.no_grad():
        branch, skip = (
            by_sample(path.bound(point)(entry), exit_axis(unit, path)).double().norm(dim=1)
            for path in (unit.branch, unit.skip)
        )
    return branch / (branch + skip)
