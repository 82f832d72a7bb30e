"""Condition numbers: of matrices, of operators, and of tensors through their HOSVD.

kappa = sigma_max / sigma_min over min(m, n) singular values. The higher-order SVD of a tensor (De Lathauwer, De Moor
and Vandewalle, SIAM J. Matrix Anal. Appl. 21, 2000) has one spectrum per mode k: the singular values of the mode-k
unfolding (dim_k rows, all other modes along the columns), which are the norms of the core's mode-k slices.

A floating-point SVD may return 1e-18 where a singular value is exactly zero, so that exact zeros are not read off
sigma_min: rows and columns that are zero in every entry are set aside first. With m', n' of them left, min(m, n) -
min(m', n') singular values are exactly zero. A zero row of a tall matrix forces none, and changes nothing.

status, in this order:
    overflow                NaN or infinite entries (also after conversion); no number, `value` is NaN
    infinite                zero slices force a zero singular value, or sigma_min == 0; `value` is inf
    numerically infinite    kappa >= 1 / (eps max(m, n)); `value` is what the SVD gave, its size means nothing
    finite

eps is that of `precision`, by default the type of the computation: the entries are taken as they are. For data that
were computed in float32, whose last bits are noise, give precision=torch.float32.

Cost: one dense SVD without vectors per mode that the reduction needs, 2 M m^2 operations for an m x M unfolding, M > m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator
from skipscope.numerics import measuring
from skipscope.spectrum.dense import svdvals

Reduction = Literal["mode", "max", "global", "channel", "matrix"]
Status = Literal["finite", "numerically infinite", "infinite", "overflow"]
REDUCTIONS = ("mode", "max", "global", "channel", "matrix")
SEVERITY: tuple[Status, ...] = ("finite", "numerically infinite", "infinite", "overflow")
TYPES = (torch.float32, torch.float64)
LIMIT = 2**28  # entries of a matrix that is assembled: 16,384 x 16,384, 2 GiB in float64


@dataclass(frozen=True)
class Mode:
    """One unfolding's condition."""

    mode: int
    shape: tuple[int, int]  # of the unfolding
    value: float
    status: Status
    rank: int | None  # singular values above max(m, n) eps sigma_max; None after overflow
    singular_values: Tensor  # min(m, n), descending; those that zero slices force are exactly 0; empty after overflow


@dataclass(frozen=True)
class Condition:
    """A condition number, with what it rests on."""

    value: float
    status: Status
    rank: int | None  # of the mode whose condition is the worst; None after overflow
    zero_slices: tuple[int, ...]  # for every mode, how many of its slices are zero in every entry
    modes: tuple[Mode, ...]  # those that the reduction looks at; one for a matrix, whose two modes agree
    reduce: Reduction
    shape: tuple[int, ...]
    dtype: torch.dtype  # of the data
    computed_in: torch.dtype
    precision: torch.dtype  # whose eps decides rank and status

    @property
    def singular_values(self) -> dict[int, Tensor]:
        """By mode."""
        return {mode.mode: mode.singular_values for mode in self.modes}


@overload
def condition_number(
    A: Operator,
    *,
    reduce: Reduction = ...,
    leave_out: Sequence[int] = ...,
    channel: int = ...,
    batched: bool = ...,
    dtype: torch.dtype = ...,
    precision: torch.dtype | None = ...,
    limit: int = ...,
) -> list[Condition]: ...


@overload
def condition_number(
    A: Tensor,
    *,
    reduce: Reduction = ...,
    leave_out: Sequence[int] = ...,
    channel: int = ...,
    batched: Literal[True],
    dtype: torch.dtype = ...,
    precision: torch.dtype | None = ...,
    limit: int = ...,
) -> list[Condition]: ...


@overload
def condition_number(
    A: Tensor,
    *,
    reduce: Reduction = ...,
    leave_out: Sequence[int] = ...,
    channel: int = ...,
    batched: Literal[False] = ...,
    dtype: torch.dtype = ...,
    precision: torch.dtype | None = ...,
    limit: int = ...,
) -> Condition: ...


def condition_number(
    A: Tensor | Operator,
    *,
    reduce: Reduction = "max",
    leave_out: Sequence[int] = (),
    channel: int = 0,
    batched: bool = False,
    dtype: torch.dtype = torch.float64,
    precision: torch.dtype | None = None,
    limit: int = LIMIT,
) -> Condition | list[Condition]:
    """The condition number of a matrix (m, n) or of a tensor of order 3 or more; of every sample of an operator or,
    with `batched`, of every A[i].

    How the modes' spectra become one number, `reduce`:
        "max"      the largest kappa of a mode, but for the modes in `leave_out` (for states (N, C, h, w), mode 0: the
                   kappa of the sample mode grows with N)
        "mode"     every mode by itself, in `.modes`; `.value` is the worst of them all
        "global"   the largest singular value of all modes over the smallest; grows with the imbalance of the shape
        "channel"  the mode `channel` alone: 0 for Cout of weights (Cout, Cin, kh, kw), 1 for Cin and for states
        "matrix"   the matrix Cout x (Cin kh kw), which is mode 0
    For a matrix all of them agree.

    An operator is assembled sample by sample in `dtype`; one of more than `limit` entries is refused.
    """
    if reduce not in REDUCTIONS:
        raise InputError(f"condition_number: expected reduce to be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    precision = dtype if precision is None else precision
    if dtype not in TYPES or precision not in TYPES:
        raise InputError(
            f"condition_number: expected torch.float32 or torch.float64 for dtype and precision, got {dtype} and "
            f"{precision}"
        )
    if not A.dtype.is_floating_point:
        raise InputError(f"condition_number: expected real floating-point numbers, got {A.dtype}; convert them first")
    shape = tuple(A.shape[1:]) if batched or isinstance(A, Operator) else tuple(A.shape)
    if len(shape) < 2 or min(A.shape) < 1:
        raise InputError(
            f"condition_number: expected a matrix (m, n) or a tensor of higher order, none of its sizes 0, got shape "
            f"{tuple(A.shape)}{' with batched=True' if batched else ''}"
        )
    modes = _modes(len(shape), reduce, leave_out, channel)

    def one(tensor: Tensor, data: torch.dtype) -> Condition:
        return _condition(tensor.to(dtype), modes, reduce, data, precision)

    if isinstance(A, Tensor):
        tensor = A.detach()
        return [one(sample, A.dtype) for sample in tensor] if batched else one(tensor, A.dtype)
    entries = math.prod(shape)
    if entries > limit:
        raise InputError(
            f"condition_number: {A.name} is {shape[0]} x {shape[1]}, {entries * dtype.itemsize / 2**30:.1f} GiB as a "
            f"{str(dtype).removeprefix('torch.')} matrix, more than the limit of {limit:,} entries. Take the largest "
            "and the smallest singular value with svd(A, k=1) and svd(A, k=1, which='smallest'), the share of zeros "
            "with spectral_density(A).mass_at(0), restrict the operator, or raise limit="
        )
    operator = A.double() if dtype == torch.float64 else A
    with measuring():
        return [one(operator.take([sample]).dense()[0].detach(), A.dtype) for sample in range(A.shape[0])]


def percentile_condition(values: Tensor, q: float = 0.1) -> Tensor:
    """|lambda|_max over the q-quantile of |lambda|, along the last axis of eigenvalues or singular values (..., n).

    The form of Li, Jiao, Han and Weissman (Demystifying ResNet), who take the 10th percentile in place of the minimum.
    The quantile is linearly interpolated between order statistics, at position q (n - 1) counted from 0. Infinite where
    it is zero, NaN where a value is NaN or infinite. Float64, of shape (...).
    """
    if not 0 <= q <= 1:
        raise InputError(f"percentile_condition: expected q from 0 to 1, got {q}")
    if values.dim() < 1 or values.shape[-1] < 1:
        raise InputError(f"percentile_condition: expected values of shape (..., n), got {tuple(values.shape)}")
    sizes = values.detach().abs().double().sort(-1).values
    position = q * (sizes.shape[-1] - 1)
    below = math.floor(position)
    above = min(below + 1, sizes.shape[-1] - 1)
    quantile = torch.lerp(sizes[..., below], sizes[..., above], position - below)
    ratio = torch.where(quantile == 0, math.inf, sizes[..., -1] / quantile)
    return torch.where(sizes.isfinite().all(-1), ratio, math.nan)


def _modes(order: int, reduce: Reduction, leave_out: Sequence[int], channel: int) -> tuple[int, ...]:
    """The modes that a reduction looks at."""
    if leave_out and reduce != "max" and reduce != "global":
        raise InputError(f'condition_number: leave_out goes with reduce="max" or "global", not with {reduce!r}')
    for mode in (*leave_out, channel):
        if not -order <= mode < order:
            raise InputError(
                f"condition_number: expected modes from 0 to {order - 1} of a tensor of order {order}, got {mode}"
            )
    if reduce == "channel":
        return (channel % order,)
    if reduce == "matrix":
        return (0,)
    left_out = {mode % order for mode in leave_out}
    modes = tuple(mode for mode in range(order) if mode not in left_out)
    if not modes:
        raise InputError(f"condition_number: leave_out={list(leave_out)} leaves no mode of a tensor of order {order}")
    return modes


def _condition(
    tensor: Tensor, modes: tuple[int, ...], reduce: Reduction, data: torch.dtype, precision: torch.dtype
) -> Condition:
    eps = torch.finfo(precision).eps
    nonzero = tensor != 0  # a NaN counts as an entry
    zero_slices = tuple(int((~_unfold(nonzero, mode).any(1)).sum()) for mode in range(tensor.dim()))
    # The two unfoldings of a matrix are each other's transposes.
    looked_at = modes[:1] if tensor.dim() == 2 else modes
    spectra = tuple(_mode(_unfold(tensor, mode), mode, eps) for mode in looked_at)
    worst = max(spectra, key=lambda mode: (SEVERITY.index(mode.status), mode.value))
    value, status, rank = max(mode.value for mode in spectra), worst.status, worst.rank
    if status in ("infinite", "overflow"):
        value = worst.value
    elif reduce == "global" and len(spectra) > 1:
        largest = max(float(mode.singular_values[0]) for mode in spectra)
        narrowest = min(spectra, key=lambda mode: float(mode.singular_values[-1]))
        smallest, rank = float(narrowest.singular_values[-1]), narrowest.rank
        value, status = _ratio(largest, smallest, eps, max(max(mode.shape) for mode in spectra))
    return Condition(
        value=value,
        status=status,
        rank=rank,
        zero_slices=zero_slices,
        modes=spectra,
        reduce=reduce,
        shape=tuple(tensor.shape),
        dtype=data,
        computed_in=tensor.dtype,
        precision=precision,
    )


def _mode(matrix: Tensor, mode: int, eps: float) -> Mode:
    """The condition of an unfolding, (m, n)."""
    shape = (matrix.shape[0], matrix.shape[1])
    if not matrix.isfinite().all():
        return Mode(mode, shape, math.nan, "overflow", None, matrix.new_empty(0).cpu())
    rows, columns = (matrix != 0).any(1), (matrix != 0).any(0)
    values = matrix.new_zeros(min(shape))
    kept = min(int(rows.sum()), int(columns.sum()))
    if kept:
        values[:kept] = svdvals(matrix[rows][:, columns])
    values = values.cpu()
    rank = int((values > max(shape) * eps * values[0]).sum())
    value, status = _ratio(float(values[0]), float(values[-1]), eps, max(shape))
    return Mode(mode, shape, value, status, rank, values)


def _ratio(largest: float, smallest: float, eps: float, size: int) -> tuple[float, Status]:
    if smallest == 0:
        return math.inf, "infinite"
    value = largest / smallest
    return value, "numerically infinite" if value >= 1 / (eps * size) else "finite"


def _unfold(tensor: Tensor, mode: int) -> Tensor:
    """dim_mode rows, all other modes along the columns."""
    return tensor.movedim(mode, 0).flatten(1)
