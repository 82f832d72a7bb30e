"""Dense decompositions with the driver that is exact to rounding.

On a GPU torch's default for an SVD is a Jacobi iteration, whose vectors and small values are off by hundreds of
rounding units even in float64; QR iteration (gesvd) is not. It takes one matrix after another there, so that small ones
are decomposed on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALL_SIDE = 256  # rows or columns, the fewer of the two


def svdvals(matrix: Tensor) -> Tensor:
    here = _placed(matrix)
    return torch.linalg.svdvals(here, driver=_driver(here)).to(matrix.device)


def thin_svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V^T."""
    here = _placed(matrix)
    U, S, Vt = (part.to(matrix.device) for part in torch.linalg.svd(here, full_matrices=False, driver=_driver(here)))
    return U, S, Vt


def triangle(rows: Tensor, above: Tensor | None = None) -> Tensor:
    """R of A = Q R, which has the singular values of A, small ones too (A^T A would lose them); A is `rows`, or `above`
    with `rows` below it, so that a tall matrix can be had block by block. Columns of zeros stay exactly zero."""
    stacked = rows if above is None else torch.cat([above, rows])
    return torch.linalg.qr(stacked, mode="r").R if stacked.shape[0] > stacked.shape[1] else stacked


def _placed(matrix: Tensor) -> Tensor:
    return matrix.cpu() if min(matrix.shape[-2:]) <= SMALL_SIDE else matrix


def _driver(matrix: Tensor) -> str | None:
    return "gesvd" if matrix.is_cuda else None
