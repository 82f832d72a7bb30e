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
    numerically infinite    kappa >= 1 / (eps max(m, n)), or sigma_min is not above what an operator's matrix is off by;
                            `value` is what the SVD gave, its size means nothing
    finite

kappa does not depend on the scale: the decomposition is that of the tensor over a power of two, so that no type's range
matters, and zero slices are those of the data as they came, before any conversion. A slice of an operator's matrix that
underflow may have made (`scale`) is no zero slice.

eps is that of `precision`, by default the type of the computation: the entries are taken as they are. For data that
were computed in float32, whose last bits are noise, give precision=torch.float32. max(m, n) is for the rounding of a
decomposition; where only the entries are off, by eps each, no singular value moves by more than eps |A|_F, at most
eps sqrt(min(m, n)) sigma_max. For the wide unfoldings of states give another factor, `size`.

Cost: per mode that the reduction needs, for an m x M unfolding, M > m, a QR decomposition of its transpose, 2 M m^2
operations, and a dense SVD of the m x m triangle without vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack, get_args, overload

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator
from skipscope.numerics import measuring
from skipscope.spectrum.assembly import compared, svdvals, triangle
from skipscope.spectrum.plan import DENSE_ENTRIES
from skipscope.spectrum.scale import exponents, scaled

Reduction = Literal["mode", "max", "global", "channel", "matrix"]
Status = Literal["finite", "numerically infinite", "infinite", "overflow"]  # the worst last
TYPES = (torch.float32, torch.float64)
KNOWN_TO = 1e-3  # of sigma_min: what a condition number that counts as finite is known to, at least
LONG_AND_NARROW = 2  # one side over the other, from where on a matrix is first made square


@dataclass(frozen=True)
class Condition:
    """A condition number, with what it rests on."""

    value: float
    status: Status
    rank: int | None  # of the mode whose condition is the worst; None after overflow
    full_rank: int  # of that mode: min(m, n)
    zero_slices: tuple[int, ...]  # for every mode, how many of its slices are zero in every entry
    modes: tuple[Mode, ...]  # those that the reduction looks at; one for a matrix, whose two modes agree
    reduce: Reduction
    shape: tuple[int, ...]
    dtype: torch.dtype  # of the data
    computed_in: torch.dtype
    precision: torch.dtype  # whose eps decides rank and status
    size: int | None  # what eps is multiplied by; None for the longer side of every unfolding

    @property
    def singular_values(self) -> dict[int, Tensor]:
        """By mode."""
        return {mode.mode: mode.singular_values for mode in self.modes}

    def reduced(self, reduce: Reduction, channel: int = 0) -> Condition:
        """Another reduction of the same modes' spectra; no decomposition is made again."""
        wanted = _modes(len(self.shape), reduce, (), channel)
        modes = self.modes if len(self.shape) == 2 else tuple(mode for mode in self.modes if mode.mode in wanted)
        if not modes:
            there = ", ".join(str(mode.mode) for mode in self.modes)
            raise InputError(f"condition_number: {reduce} takes mode {wanted[0]}, there are the spectra of {there}")
        return replace(self, modes=modes, reduce=reduce, **_number(modes, reduce, self.precision, self.size))


class Options(TypedDict, total=False):
    """Of `condition_number`, which says what they mean."""

    reduce: Reduction
    leave_out: Sequence[int]
    channel: int
    dtype: torch.dtype
    precision: torch.dtype | None
    size: int | None
    limit: int


@overload
def condition_number(A: Operator, *, batched: bool = ..., **options: Unpack[Options]) -> list[Condition]: ...


@overload
def condition_number(A: Tensor, *, batched: Literal[True], **options: Unpack[Options]) -> list[Condition]: ...


@overload
def condition_number(A: Tensor, *, batched: Literal[False] = ..., **options: Unpack[Options]) -> Condition: ...


def condition_number(
    A: Tensor | Operator,
    *,
    reduce: Reduction = "max",
    leave_out: Sequence[int] = (),
    channel: int = 0,
    batched: bool = False,
    dtype: torch.dtype = torch.float64,
    precision: torch.dtype | None = None,
    size: int | None = None,
    limit: int = DENSE_ENTRIES,
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

    size: what eps is multiplied by in rank and status, by default the longer side of the unfolding.
    An operator is assembled sample by sample in `dtype`; one of more than `limit` entries is refused.
    """
    if reduce not in get_args(Reduction):
        known = ", ".join(get_args(Reduction))
        raise InputError(f"condition_number: expected reduce to be one of {known}, got {reduce!r}")
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
    if size is not None and size < 1:
        raise InputError(f"condition_number: expected size of at least 1, got {size}")

    def one(tensor: Tensor, nonzero: Tensor | None = None, off: float = 0.0) -> Condition:
        nonzero = tensor != 0 if nonzero is None else nonzero  # a NaN counts as an entry
        found = _condition(tensor, nonzero, modes, reduce, dtype, precision, size, off)
        return replace(found, dtype=A.dtype)

    if isinstance(A, Tensor):
        tensor = A.detach()
        return [one(sample) for sample in tensor] if batched else one(tensor)
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
        return [_of_operator(operator.take([sample]), one) for sample in range(A.shape[0])]


def percentile_condition(values: Tensor, q: float = 0.1) -> Tensor:
    """|lambda|_max over the q-quantile of |lambda|, along the last axis of eigenvalues or singular values (..., n).

    The form of Li, Jiao, Han and Weissman (Demystifying ResNet), who take the 10th percentile in place of the minimum.
    The quantile is linearly interpolated between order statistics, at position q (n - 1) counted from 0. Infinite where
    it is zero or the ratio is above the largest number, NaN where a value is NaN or infinite. Float64, of shape (...).
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


def _of_operator(A: Operator, condition: Callable[..., Condition]) -> Condition:
    """Of one sample. What underflow may have made is no zero; what the matrix may be off by is relative to its largest
    entry."""
    entries = A.dense().detach()  # 1, m, n
    if not entries.isfinite().all():
        return condition(entries[0])
    known = compared(A.double(), entries.double(), A.dtype)
    rows, columns = known.zero_rows[0], known.zero_columns[0]
    nonzero = torch.where(rows[:, None] | columns, False, entries[0] != 0)
    nonzero[(entries[0] == 0).all(1) & ~rows] = True
    nonzero[:, (entries[0] == 0).all(0) & ~columns] = True
    # What was lost beyond rounding leaves a ratio of three digits or none.
    off = float(torch.maximum(known.margin, known.hidden / KNOWN_TO))
    largest = float(known.matrix.abs().max())
    return condition(entries[0], nonzero, off / largest if largest else math.inf if off else 0.0)


def _condition(
    tensor: Tensor,
    nonzero: Tensor,
    modes: tuple[int, ...],
    reduce: Reduction,
    dtype: torch.dtype,
    precision: torch.dtype,
    size: int | None,
    off: float,
) -> Condition:
    """nonzero: which entries may differ from 0. off: of the matrix, relative to its largest entry."""
    axes = range(tensor.dim())
    zero_slices = tuple(int((~nonzero.any([axis for axis in axes if axis != mode])).sum()) for mode in axes)
    # The two unfoldings of a matrix are each other's transposes.
    looked_at = modes[:1] if tensor.dim() == 2 else modes
    if tensor.to(dtype).isfinite().all():
        exponent = int(exponents(tensor.reshape(1, -1), dtype))
        data = (scaled(tensor.double()[None], -exponent)[0] if exponent else tensor).to(dtype)
    else:
        exponent, data = 0, torch.full_like(tensor, math.nan, dtype=dtype)
    spectra = tuple(
        mode_condition(unfold(data, mode), unfold(nonzero, mode), mode, exponent, precision, size, off)
        for mode in looked_at
    )
    return Condition(
        **_number(spectra, reduce, precision, size),
        zero_slices=zero_slices,
        modes=spectra,
        reduce=reduce,
        shape=tuple(tensor.shape),
        dtype=tensor.dtype,
        computed_in=dtype,
        precision=precision,
        size=size,
    )


def _number(spectra: Sequence[Mode], reduce: Reduction, precision: torch.dtype, size: int | None) -> dict[str, Any]:
    """One number from the modes' spectra, with the rank of the mode that decides."""
    deciding = max(spectra, key=lambda mode: (get_args(Status).index(mode.status), mode.value))
    value, status = max(mode.value for mode in spectra), deciding.status
    if status in ("infinite", "overflow"):
        value = deciding.value
    elif reduce == "global" and len(spectra) > 1:
        largest = max(float(mode.singular_values[0]) for mode in spectra)
        deciding = min(spectra, key=lambda mode: float(mode.singular_values[-1]))
        longest = size or max(max(mode.shape) for mode in spectra)
        least = deciding.singular_values[-1]
        value, status = ratio(largest, float(least), torch.finfo(precision).eps * longest)
        if status == "finite" and least < torch.finfo(least.dtype).smallest_normal:  # not all of its digits are there
            status = "numerically infinite"
    return {"value": value, "status": status, "rank": deciding.rank, "full_rank": min(deciding.shape)}


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
