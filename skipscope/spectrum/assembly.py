"""Matrices assembled from products, in a unit of their own, with what is not known of them; their decompositions.

Two things are lost in an assembly that no decomposition can see: what cancels inside a network, where large terms
round, and what underflows there. Products from the other side, with large vectors (`scale.fresh_products`), round and
underflow in other places. For Gaussian v the mean of |M v - A v|^2 is |M - A|_F^2, and so is that of |M^T u - A^T u|^2.

On a GPU torch's default for an SVD is a Jacobi iteration, whose vectors and small values are off by hundreds of
rounding units even in float64; QR iteration (gesvd) is not. It takes one matrix after another there, so that small ones
are decomposed on the CPU, each by one core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.cores import on_all_cores, one_thread
from skipscope.errors import InputError
from skipscope.linear.operator import Dense, Operator
from skipscope.numerics import normal, random_numbers
from skipscope.spectrum.checks import check_finite
from skipscope.spectrum.scale import MARGIN, exponents, fresh_products, rounding, scaled

PROBES = 4
SMALL_SIDE = 512  # rows or columns, the fewer of the two: up to here a matrix is decomposed on the CPU
WORTH_CORES = 2 * 10**6  # side^3 in all, of a batch of decompositions that is worth several cores: 5 ms of one


@dataclass(frozen=True)
class Assembled:
    matrix: Tensor  # B, m, n in float64: A / 2^exponent
    exponent: Tensor  # B
    error: Tensor  # B: the estimated |matrix - A|_F, in the unit; 0 for matrices that were there already
    rounding: Tensor  # B: how large that is without any cancellation or underflow
    zero_rows: Tensor  # B, m: zero in every entry, and not by underflow
    zero_columns: Tensor  # B, n

    @property
    def margin(self) -> Tensor:
        """B: how far a singular value of the matrix may be from that of A, by what was lost on the way."""
        return MARGIN * self.error

    @property
    def hidden(self) -> Tensor:
        """B: the same without ordinary rounding, which residuals have seen."""
        return torch.where(self.error <= self.rounding, 0.0, self.margin)


def assembled(A: Operator, samples: Sequence[int] | None = None) -> Assembled:
    """The matrices of some or all samples; those with entries that are not finite are refused."""
    samples = range(A.shape[0]) if samples is None else samples
    chosen = A.take(samples).double()
    entries = chosen.dense().detach()  # B, m, n
    check_finite(entries, A, samples)
    return compared(chosen, entries, A.dtype)


def compared(A: Operator, entries: Tensor, dtype: torch.dtype) -> Assembled:
    """Entries (B, m, n) that were assembled from a float64 operator, against products with large vectors. The unit is
    one for the range of `dtype`, the operator's own type."""
    exponent, zero = exponents(entries, dtype), entries == 0
    matrix, rows, columns = scaled(entries, -exponent), zero.all(2), zero.all(1)
    allowed = rounding(A) * torch.linalg.vector_norm(matrix, dim=(1, 2)).cpu()
    if isinstance(A, Dense):
        return Assembled(matrix, exponent, torch.zeros_like(allowed), allowed, rows, columns)
    u, v = gaussians(A)

    def back() -> Tensor:  # B, n, PROBES
        return _with_room(fresh_products(A.rmatmat, u, exponent), A)

    def forth() -> Tensor:  # B, m, PROBES
        return _with_room(fresh_products(A.matmat, v, exponent), A)

    # The side that the entries do not come from says how well they are known; the other is needed for a proof alone.
    if A.by_rows:
        other = forth()
        error, rows = matrix @ v - other, rows & (other == 0).all(2)
        columns = columns & (back() == 0).all(2) if columns.any() else columns
    else:
        other = back()
        error, columns = matrix.mT @ u - other, columns & (other == 0).all(2)
        rows = rows & (forth() == 0).all(2) if rows.any() else rows
    size = torch.linalg.vector_norm(error, dim=(1, 2)).cpu() / PROBES**0.5
    return Assembled(matrix, exponent, size, allowed, rows, columns)


def two_sided_error(A: Operator) -> float:
    """The estimated |E|_F, where E is the difference between products from the left and from the right, of one sample
    whose matrix is not needed."""
    if isinstance(A, Dense):
        return 0.0
    u, v = gaussians(A)
    zero = torch.zeros(1, dtype=torch.long, device="cpu")
    pushed, pulled = A.matmat(v), _with_room(fresh_products(A.rmatmat, u, zero), A)
    return float((u.mT @ pushed - pulled.mT @ v).square().mean().sqrt())


def gaussians(A: Operator) -> tuple[Tensor, Tensor]:
    """(B, m, PROBES) and (B, n, PROBES), the same for every sample."""
    batch, m, n = A.shape
    numbers = random_numbers("probes", 0)
    u, v = (normal((1, size, PROBES), numbers, device=A.device) for size in (m, n))
    return u.expand(batch, m, PROBES), v.expand(batch, n, PROBES)


def _with_room(product: Tensor, A: Operator) -> Tensor:
    if not product.isfinite().all():
        raise InputError(
            f"products of {A.name} of shape {A.shape} leave the range of {str(A.dtype).removeprefix('torch.')} as soon "
            "as the vectors are made a little larger; its spectrum cannot be distinguished from overflow: take that "
            "of a multiple, such as 1e-100 * A"
        )
    return product


def svdvals(matrix: Tensor) -> Tensor:
    (values,) = _by_core(lambda some: (torch.linalg.svdvals(some, driver=_driver(some)),), matrix)
    return values


def thin_svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V^T."""
    U, S, Vt = _by_core(lambda some: torch.linalg.svd(some, full_matrices=False, driver=_driver(some)), matrix)
    return U, S, Vt


def triangle(rows: Tensor, above: Tensor | None = None) -> Tensor:
    """R of A = Q R, which has the singular values of A, small ones too (A^T A would lose them); A is `rows`, or `above`
    with `rows` below it, so that a tall matrix can be had block by block. Columns of zeros stay exactly zero."""
    stacked = rows if above is None else torch.cat([above, rows])
    return torch.linalg.qr(stacked, mode="r").R if stacked.shape[0] > stacked.shape[1] else stacked


def _by_core(decompose: Callable[[Tensor], Sequence[Tensor]], matrices: Tensor) -> list[Tensor]:
    """What is found of (..., m, n): small matrices on the CPU, and where there is enough to do a part for each core."""
    small = min(matrices.shape[-2:])
    if small > SMALL_SIDE and matrices.device.type != "cpu":
        return list(decompose(matrices))
    batch, here = matrices.shape[:-2], matrices.cpu()
    if not batch or here.numel() * small < WORTH_CORES:
        with one_thread(bool(batch)):
            return [part.to(matrices.device) for part in decompose(here)]
    flat = here.flatten(0, len(batch) - 1)
    found = list(on_all_cores(decompose, flat.split(-(-len(flat) // torch.get_num_threads()))))
    columns = (torch.cat(column) for column in zip(*found, strict=True))
    return [column.unflatten(0, batch).to(matrices.device) for column in columns]


def _driver(matrix: Tensor) -> str | None:
    return "gesvd" if matrix.is_cuda else None
