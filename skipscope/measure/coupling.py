"""How far a Jacobian is from diagonal in the singular vectors of another: functions of tensors alone.

With U_j, V_j the K leading left and right singular vectors of J_j and S_i the K leading singular values of J_i:

grid        G = U_j^T J_i V_j, K x K
coupling    m_K = | |G| - diag(S_i) |_F / |S_i|, entries of G in absolute value (residual alignment); signed: without
            the absolute value. 0 where J_i has the same leading triplets as J_j.
chance      the mean of m_K with random orthonormal vectors in the place of U_j and V_j. As J_i with random rotations on
            both sides has the same law, this is the level of Jacobians that share their spectra and nothing else.
cosines     of the principal angles between the spans of two sets of vectors: the singular values of U_i^T U_j, which
            do not depend on the choice of vectors where singular values are equal
"""

from __future__ import annotations

import torch
from torch import Tensor

from skipscope.numerics import normal


def coupling(grid: Tensor, values: Tensor, counts: Tensor, *, signed: bool = False) -> Tensor:
    """m_K of the first `counts` rows, columns and values; NaN where that is none.

    grid: (..., K, K), values: (..., K), counts: (...) -> (...), all broadcast.
    """
    inside = _leading(values.shape[-1], counts)  # ..., K
    diagonal = torch.diag_embed(torch.where(inside, values, 0.0))
    panel = torch.where(inside[..., :, None] & inside[..., None, :], grid if signed else grid.abs(), 0.0)
    return torch.linalg.matrix_norm(panel - diagonal) / torch.linalg.matrix_norm(diagonal)


def chance_table(grids: Tensor, values: Tensor, *, signed: bool = False) -> tuple[Tensor, Tensor]:
    """Mean m_K over random draws and its standard error, for every K: (B, draws, K, K), (B, K) -> (B, K), (B, K)."""
    columns = []
    for count in range(1, values.shape[-1] + 1):
        counts = torch.full(grids.shape[:2], count, device=grids.device)
        columns.append(coupling(grids, values[:, None], counts, signed=signed))
    drawn = torch.stack(columns, -1)  # B, draws, K
    return drawn.mean(1), drawn.std(1) / drawn.shape[1] ** 0.5


def cosines(first: Tensor, second: Tensor, first_counts: Tensor, second_counts: Tensor) -> Tensor:
    """Descending; of the first vectors of each, as many as the counts say, NaN after the smaller number.

    (..., n, K), (..., n, K), (...), (...) -> (..., K), all broadcast.
    """
    K = first.shape[-1]
    kept = [
        torch.where(_leading(K, counts)[..., None, :], vectors, 0.0)
        for vectors, counts in ((first, first_counts), (second, second_counts))
    ]
    product = kept[0].mT @ kept[1]  # ..., K, K: so small that the CPU is quicker and more exact
    found = torch.linalg.svdvals(product.cpu()).to(product.device)
    return torch.where(_leading(K, torch.minimum(first_counts, second_counts)), found, float("nan"))


def repeated(values: Tensor, residuals: Tensor, near: float) -> Tensor:
    """Whether a value has a neighbour within `near` times the largest, or within the two residuals: (B, k) -> (B, k).

    The vectors of such values are any basis of one space.
    """
    gaps = values[:, :-1] - values[:, 1:]
    close = gaps <= torch.maximum(near * values[:, :1], residuals[:, :-1] + residuals[:, 1:])
    edge = close.new_zeros(len(close), 1)
    return torch.cat([close, edge], 1) | torch.cat([edge, close], 1)


def random_frames(draws: int, size: int, k: int, generator: torch.Generator) -> Tensor:
    """Orthonormal columns, uniformly distributed: (draws, size, k) in float64 on the CPU.

    QR of Gaussian matrices is uniform once the diagonal of R is positive (Mezzadri 2007).
    """
    Q, R = torch.linalg.qr(normal((draws, size, k), generator))
    return Q * R.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]


def _leading(K: int, counts: Tensor) -> Tensor:
    """(...) -> (..., K): True for the first `counts` places."""
    return torch.arange(K, device=counts.device) < counts[..., None]
