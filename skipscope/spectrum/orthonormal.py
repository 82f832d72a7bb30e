"""Orthonormal blocks of vectors, and their signs.

Orthogonality is full, by block Gram-Schmidt repeated until nothing is lost ("twice is enough", Giraud, Langou,
Rozloznik, van den Eshof 2005). A vector that depends on the others is replaced by a random one, with a zero in the
coefficients, so that an exhausted Krylov space goes on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from skipscope.numerics import normal

EQUALLY_LARGE = 0.99  # of the largest entry of a vector: which of two such is the larger, rounding would decide


def orthonormalise(
    block: Tensor, basis: Tensor, scale: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """block = basis C + Q R with orthonormal [basis, Q]: (Q, C, R) of shapes (B, n, w), (B, p, b), (w, b).

    w is b, or what the space has left. Columns that are zero to rounding at `scale` (B) give random columns of Q.
    Cost: 4 n p b operations per pass, two passes unless vectors are nearly dependent.
    """
    batch, size, width = block.shape
    left = size - basis.shape[2]
    if left < width:
        rest = random_block(size, left, generator, block).expand(batch, size, left)
        if left:
            rest, _, _ = orthonormalise(rest, basis, torch.ones_like(scale), generator)
        return rest, basis.mT @ block, rest.mT @ block
    Q, C = block, torch.zeros(batch, basis.shape[2], width, dtype=block.dtype, device=block.device)
    R = torch.eye(width, dtype=block.dtype, device=block.device).expand(batch, width, width)
    for attempt in range(6):
        inside = basis.mT @ Q  # B, p, b
        Q, triangle, lost = _gram_schmidt(Q - basis @ inside, scale, generator)
        C, R = C + inside @ R, triangle @ R
        if attempt and not lost:
            break
        scale = torch.ones_like(scale)
    return Q, C, R


def _gram_schmidt(block: Tensor, scale: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, bool]:
    """Q, R of a block, and whether a column lost so much that the block has to be orthogonalised again."""
    batch, size, width = block.shape
    Q, R = torch.empty_like(block), torch.zeros(batch, width, width, dtype=block.dtype, device=block.device)
    threshold = (10 * torch.finfo(block.dtype).eps * scale)[:, None, None]
    for j in range(width):
        column, done = block[:, :, j : j + 1], Q[:, :, :j]
        inside = done.mT @ column  # B, j, 1
        column = column - done @ inside
        R[:, :j, j : j + 1] = inside
        norm = torch.linalg.vector_norm(column, dim=1, keepdim=True)  # B, 1, 1
        zero = norm <= threshold
        if zero.any():
            fresh = random_block(size, 1, generator, block).expand(batch, size, 1)
            fresh = fresh - done @ (done.mT @ fresh)
            fresh = fresh / torch.linalg.vector_norm(fresh, dim=1, keepdim=True)
            column = torch.where(zero, fresh, column / torch.where(zero, 1.0, norm))
        else:
            column = column / norm
        Q[:, :, j : j + 1], R[:, j : j + 1, j : j + 1] = column, torch.where(zero, 0.0, norm)
    lost = R.diagonal(dim1=1, dim2=2) < 0.7 * scale[:, None]
    return Q, R, bool(lost.any())


def rotate(basis: Tensor, vectors: Tensor) -> Tensor:
    """basis @ vectors, orthonormal again to rounding: (3 - Q^T Q) / 2 squares what a restart adds to the error."""
    Q = basis @ vectors  # B, n, k
    return Q @ (1.5 * torch.eye(Q.shape[2], dtype=Q.dtype, device=Q.device) - 0.5 * (Q.mT @ Q))


def random_block(size: int, width: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """(1, size, width): the same for every sample, and on every device, so that a sample's result is its own."""
    return normal((1, size, width), generator, like.dtype, like.device)


def fixed_signs(vectors: Tensor) -> Tensor:
    """+1 or -1 for each vector of (B, n, k), as (B, 1, k), that makes its largest entry positive: the first of those
    within 1 % of the largest, so that rounding does not decide between equals."""
    magnitude = vectors.abs()
    large = magnitude >= EQUALLY_LARGE * magnitude.amax(1, keepdim=True)
    first = large.to(torch.uint8).argmax(1, keepdim=True)  # B, 1, k
    return torch.where(vectors.gather(1, first) < 0, -1.0, 1.0).to(vectors.dtype)
