"""The condition of one matrix, and of one unfolding of a tensor, from all singular values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from skipscope.spectrum.decompositions import svdvals, triangle
from skipscope.spectrum.scale import scaled

Status = Literal["finite", "numerically infinite", "infinite", "overflow"]
LONG_AND_NARROW = 2  # one side over the other, from where on a matrix is first made square


@dataclass(frozen=True)
class Mode:
    """One unfolding's condition."""

    mode: int
    shape: tuple[int, int]  # of the unfolding
    value: float
    status: Status
    rank: int | None  # singular values above max(m, n) eps sigma_max; None after overflow
    singular_values: Tensor  # min(m, n), descending; those that zero slices force are exactly 0; empty after overflow


def mode_condition(
    matrix: Tensor, nonzero: Tensor, mode: int, exponent: int, precision: torch.dtype, size: int | None, off: float
) -> Mode:
    """The condition of an unfolding, (m, n), over 2^exponent."""
    shape = (matrix.shape[0], matrix.shape[1])
    if not matrix.isfinite().all():
        return Mode(mode, shape, math.nan, "overflow", None, matrix.new_empty(0).cpu())
    rows, columns = nonzero.any(1), nonzero.any(0)
    values = matrix.new_zeros(min(shape))
    kept = min(int(rows.sum()), int(columns.sum()))
    if kept:
        left = matrix if rows.all() and columns.all() else matrix[rows][:, columns]
        values[:kept] = svdvals(_compressed(left))
    values = values.cpu()
    value, status, rank = condition_of(values, precision, size or max(shape), off * float(matrix.abs().max()))
    if status == "infinite" and kept == min(shape) and bool((nonzero & (matrix == 0)).any()):
        status = "numerically infinite"  # not zero: too small to be seen next to the largest
    return Mode(mode, shape, value, status, rank, scaled(values[None], exponent)[0])


def _compressed(matrix: Tensor) -> Tensor:
    """A square matrix with the singular values of a long one: several times quicker than its own decomposition."""
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    return triangle(tall) if tall.shape[0] > LONG_AND_NARROW * tall.shape[1] else matrix


def condition_of(values: Tensor, precision: torch.dtype, size: int, off: float = 0.0) -> tuple[float, Status, int]:
    """kappa, its status and the numerical rank from all singular values, in any order; a value that counts as zero is
    at most eps size sigma_max, or `off`, what the values are known to, where that is larger."""
    largest, smallest = float(values.max()), float(values.min())
    tolerance = torch.finfo(precision).eps * size
    if off > tolerance * largest:
        tolerance = off / largest if largest else math.inf
    rank = int((values > tolerance * largest).sum())
    return *ratio(largest, smallest, tolerance), rank


def ratio(largest: float, smallest: float, tolerance: float) -> tuple[float, Status]:
    if smallest == 0:
        return math.inf, "infinite"
    value = largest / smallest
    return value, "numerically infinite" if value >= 1 / tolerance else "finite"


def unfold(tensor: Tensor, mode: int) -> Tensor:
    """dim_mode rows, all other modes along the columns."""
    return tensor.movedim(mode, 0).flatten(1)
