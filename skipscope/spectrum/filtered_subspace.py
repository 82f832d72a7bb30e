"""The largest singular triplets of matrices that are there: subspace iteration with Chebyshev filters (Rutishauser's
ritzit 1969; Zhou, Saad, Tiago and Chelikowsky 2006).

A block X of b = k + max(k, 32) orthonormal vectors is filtered by a polynomial of M = A^T A that is small on [0, beta]
and grows fast above it, beta the square of the smallest singular value of A X:

    X <- T_d(2 M / beta - 1) X,        T_d the Chebyshev polynomial of degree d,

then made orthonormal, and the triplets are those of A X (Rayleigh and Ritz). The degree is such that the largest value
that has not converged grows by 1e6 relative to beta: the block stays far from dependent. Vectors that have converged
are left out of the filter. A is multiplied by b vectors at once, nothing else is of its size; that suits a GPU, where a
Lanczos iteration with few vectors waits for its many small steps. The block's width makes up for close values: at the
edge of a random matrix's spectrum 15 values of 1200 take five filters, 6,500 products.

As a second trial, a fresh random block without the found vectors is filtered too: what it sees must not be above the
k-th value. Cost of a filter: 4 d m n b operations, of its triplets 2 m n b + 4 m b^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.numerics import normal, random_numbers
from skipscope.spectrum.assembly import thin_svd

MORE_VECTORS = 32  # in a block than are wanted, at least
GROWTH = 1e6  # of the largest value in one filter, relative to beta
ROUNDING = 1e-13  # of the largest value: below it a value is rounding of the products
LARGEST_DEGREE = 24
MOST_FILTERS = 24
SMALLEST_RATIO = 1e-7  # of the smallest value in a block to the largest that is filtered: below it M is rounding
TRIAL = 8  # fresh vectors


@dataclass(frozen=True)
class Found:
    U: Tensor  # B, m, k
    S: Tensor  # B, k
    V: Tensor  # B, n, k
    settled: Tensor  # B: nothing larger was seen from fresh vectors
    filters: int
    products: int  # vectors multiplied by A or its transpose, of each sample


def block_width(k: int) -> int:
    return k + max(k, MORE_VECTORS)


def leading_triplets(A: Tensor, k: int, tolerance: float, seed: int = 0) -> Found | None:
    """Of (B, m, n) in float64, m >= n, entries near 1; None where the residuals do not fall below the tolerance."""
    width = block_width(k)
    numbers = random_numbers("probes", seed)
    X, _ = _orthonormal(normal((A.shape[2], width), numbers, device=A.device).expand(A.shape[0], -1, -1))
    products = 0
    for filters in range(MOST_FILTERS):
        U, S, X = _triplets(A, X)
        back = torch.linalg.vector_norm(A.mT @ U[:, :, :k] - X[:, :, :k] * S[:, None, :k], dim=1)  # B, k
        products += width + k
        if bool((back <= tolerance / 4 * S[:, :1]).all()):
            degree, beta = _degree(S, k - 1), _beta(S, k - 1)
            above = _seen_afresh(A, X[:, :, :k], beta, degree, numbers)
            products += (2 * degree + 1) * TRIAL
            settled = above <= S[:, k - 1] + tolerance * S[:, 0]
            return Found(U[:, :, :k], S[:, :k], X[:, :, :k], settled, filters, products)
        done = int((back <= ROUNDING * S[:, :1]).cumprod(1).sum(1).clamp(max=k - 1).min())  # of all samples
        degree = _degree(S, done)
        kept, rest = X[:, :, :done], X[:, :, done:]
        rest = _filtered(A, rest, kept, _beta(S, done), degree)
        X, _ = _orthonormal(torch.cat([kept, rest], 2))
        products += 2 * degree * (width - done)
    return None


def _triplets(A: Tensor, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of A X, from the largest on: left vectors (B, m, b), values (B, b), right vectors (B, n, b)."""
    Q, R = _orthonormal(A @ X)
    x, S, yt = thin_svd(R)
    return Q @ x, S, X @ yt.mT


def _beta(S: Tensor, first: int) -> Tensor:
    """(B, 1, 1): the end of the interval that is damped. first: the largest value that is filtered."""
    floor = torch.maximum(SMALLEST_RATIO * S[:, first], ROUNDING * S[:, 0])
    found = torch.maximum(S[:, -1], floor).square()
    return torch.where(found > 0, found, 1.0)[:, None, None]


def _degree(S: Tensor, first: int) -> int:
    """For all samples: the growth acosh(2 s^2 / beta - 1) per degree is that of the sample with the largest ratio."""
    ratio = float((S[:, first].square() / _beta(S, first)[:, 0, 0]).max())
    growth = math.acosh(max(2 * ratio - 1, 1 + 1e-12))
    return max(1, min(LARGEST_DEGREE, int(math.log(GROWTH) / growth)))


def _filtered(A: Tensor, X: Tensor, without: Tensor, beta: Tensor, degree: int) -> Tensor:
    """without: vectors that have converged; their part is taken off in every step, since a value far above the others
    would grow there out of rounding."""

    def moved(some: Tensor) -> Tensor:
        image = A.mT @ (A @ some) * (2 / beta) - some
        return image - without @ (without.mT @ image)

    last, now = X - without @ (without.mT @ X), moved(X)
    for _ in range(degree - 1):
        last, now = now, 2 * moved(now) - last
    return now / torch.linalg.vector_norm(now, dim=1, keepdim=True).clamp_min(torch.finfo(now.dtype).tiny)


def _seen_afresh(A: Tensor, V: Tensor, beta: Tensor, degree: int, numbers: torch.Generator) -> Tensor:
    """(B,): the largest singular value of A that a random block orthogonal to V sees after a filter."""
    start = normal((A.shape[2], TRIAL), numbers, device=A.device).expand(A.shape[0], -1, -1)
    fresh, _ = _orthonormal(_filtered(A, start, V, beta, degree))
    fresh = fresh - V @ (V.mT @ fresh)  # where little but rounding is left, it has parts of V
    return _triplets(A, fresh)[1][:, 0]


def _orthonormal(X: Tensor) -> tuple[Tensor, Tensor]:
    """Q and R of X (B, n, b): twice by the Cholesky factor of the Gram matrix, which is matrix products; by Householder
    reflections where X is too close to dependent for that."""
    Q, R = X, None
    for _ in range(2):
        factor, failed = torch.linalg.cholesky_ex(Q.mT @ Q)
        diagonal = factor.diagonal(dim1=-2, dim2=-1)
        if bool(failed.any()) or not bool((diagonal.amin(1) > 1e-6 * diagonal.amax(1)).all()):
            Q, R = torch.linalg.qr(X)
            return Q, R
        upper = factor.mT
        Q = torch.linalg.solve_triangular(upper, Q, upper=True, left=False)
        R = upper if R is None else upper @ R
    assert R is not None, "there are two passes"
    return Q, R
