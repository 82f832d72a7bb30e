"""Extreme eigenvalues of a symmetric block Toeplitz matrix whose blocks below the diagonal are all alike.

    H = [[B, A^T, A^T, ...], [A, B, A^T, ...], [A, A, B, ...], ...],   R x R blocks

Taking differences of neighbouring block rows and of the same columns, a congruence, leaves of H - x I the block
tridiagonal matrix with diagonal B - x I, then N + N^T throughout, and -N below it, where N = B - A - x I. Elimination
of block after block,

    S_1 = B - x I,   S_k = N + N^T - N S_{k-1}^{-1} N^T,

has as many negative eigenvalues in all S_k together as H has below x (Sylvester). Bounds that close in on a step of the
count find an eigenvalue. A count costs R factorisations of the size of a block, where the eigenvalues of H cost R^3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

ACCURACY = 1e-10  # relative, of an eigenvalue that is found by counting
COUNTED_POINTS = 4  # between two bounds, at which eigenvalues are counted at once


def assembled(A: Tensor, B: Tensor, units: int) -> Tensor:
    """The matrix itself."""
    below = torch.ones(units, units, dtype=A.dtype, device=A.device).tril(-1)
    eye = torch.eye(units, dtype=A.dtype, device=A.device)
    return torch.kron(eye, B) + torch.kron(below, A) + torch.kron(below.T, A.T)


def count_below(A: Tensor, B: Tensor, units: int, x: Tensor) -> Tensor:
    """How many eigenvalues are less than each of x (k,): k."""
    shift = x[:, None, None] * torch.eye(len(B), dtype=B.dtype, device=B.device)
    N = B - A - shift  # k, size, size
    pivot, count = B - shift, torch.zeros(len(x), dtype=torch.int64, device=B.device)
    for _ in range(units):
        factors, places, _ = torch.linalg.ldl_factor_ex(pivot)
        single = places > 0  # the others are halves of 2 x 2 blocks, which have one eigenvalue of each sign
        count += ((factors.diagonal(dim1=1, dim2=2) < 0) & single).sum(1) + (~single).sum(1) // 2
        pivot = N + N.mT - N @ torch.linalg.ldl_solve(factors, places, N.mT)
        pivot = (pivot + pivot.mT) / 2
    return count


def extreme_magnitudes(A: Tensor, B: Tensor, units: int) -> tuple[float, float]:
    """The largest and the smallest absolute eigenvalue."""
    A, B = A.cpu(), B.cpu()  # many small steps
    top = float(torch.linalg.matrix_norm(B, 2) + (units - 1) * torch.linalg.matrix_norm(A, 2)) * (1 + 1e-9)

    def within(x: Tensor) -> Tensor:
        below = count_below(A, B, units, torch.cat([x, -x]))
        return below[: len(x)] - below[len(x) :]

    def first(enough: int) -> float:
        """The magnitude up to which there are `enough` eigenvalues; below rounding, 0."""
        low, high = torch.finfo(B.dtype).eps * top, top
        if int(within(B.new_tensor([low]))) >= enough:
            return 0.0
        while high > low * (1 + ACCURACY):
            ends = (math.log(low), math.log(high))
            between = torch.logspace(*ends, COUNTED_POINTS + 2, math.e, dtype=B.dtype, device="cpu")[1:-1]
            missing = int((within(between) < enough).sum())
            grid = [low, *between.tolist(), high]
            low, high = grid[missing], grid[missing + 1]
        return high

    return (first(units * len(B)), first(1)) if top > 0 else (0.0, 0.0)
