"""Dense decompositions with the driver that is exact to rounding.

On a GPU torch's default for an SVD is a Jacobi iteration, whose vectors and small values are off by hundreds of
rounding units even in float64; QR iteration (gesvd) is not.
"""

from __future__ import annotations

import torch
from torch import Tensor


def svdvals(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix, driver=_driver(matrix))


def thin_svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V^T."""
    U, S, Vt = torch.linalg.svd(matrix, full_matrices=False, driver=_driver(matrix))
    return U, S, Vt


def _driver(matrix: Tensor) -> str | None:
    return "gesvd" if matrix.is_cuda else None
