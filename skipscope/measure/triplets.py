"""The leading singular triplets of an operator, with what is known of the rest of its spectrum.

Two routes. The dense one assembles the matrix in float64: rank and |A|_F are exact. The iterative one (`spectrum.svd`,
block Golub-Kahan) needs products alone; |A|_F^2 is then

    s_1^2 + ... + s_k^2 + |A (I - V V^T)|_F^2

with the last term from random signs z, E |A (I - V V^T) z|^2: what is estimated is only what the triplets leave, and
the standard error is that of this rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear import Operator
from skipscope.numerics import seed_of
from skipscope.spectrum import plan, svd
from skipscope.spectrum.dense import thin_svd
from skipscope.spectrum.krylov import check_finite, fixed_signs
from skipscope.spectrum.plan import check_fits

ROUTES = ("auto", "dense", "iterative")
DENSE_SIDE = 1024  # up to this min(m, n) a matrix and its SVD take about a second
PROBES = 32  # random signs for what the triplets leave of |A|_F^2


@dataclass(frozen=True)
class Triplets:
    """A v = s u and A^T u = s v to the residuals; u and v of one decomposition, the largest entry of v positive."""

    U: Tensor  # B, m, k
    S: Tensor  # B, k
    V: Tensor  # B, n, k
    residuals: Tensor  # B, k: max(|A v - s u|, |A^T u - s v|)
    converged: Tensor  # B, k
    counted: Tensor  # B: leading values that can be told from zero
    rank: Tensor  # B: numerical rank; NaN where it is above k and not known
    above: Tensor  # B: values above a share of the first; NaN where more than k are
    square: Tensor  # B: |A|_F^2
    square_error: Tensor  # B: its standard error, 0 where it is exact
    route: str  # "dense" or "iterative"


def leading_triplets(
    A: Operator,
    k: int,
    *,
    share: float,
    route: str = "auto",
    tolerance: float | None = None,
    max_products: int | None = None,
    seed: int = 0,
) -> Triplets:
    """share: of the largest value, above which values are counted in `above`. A value counts as zero within
    max(m, n) eps s_1, eps that of the arithmetic behind the products, or within its residual where that is larger.

    tolerance: of residuals, relative to the largest value; eps^(2/3) unless given.
    """
    if route not in ROUTES:
        raise InputError(f"route={route!r}: expected one of {', '.join(ROUTES)}")
    small = min(A.shape[1:])
    if route == "dense":
        check_fits(A)
    if route == "dense" or (route == "auto" and small <= DENSE_SIDE and plan(A).fits):
        return _dense(A, min(k, small), share)
    return _iterative(A, min(k, small), share, tolerance or _tolerance(A), max_products, seed)


def _dense(A: Operator, k: int, share: float) -> Triplets:
    parts = []
    for samples in _pieces(A):
        matrix = (A if len(samples) == A.shape[0] else A.take(samples)).dense()
        check_finite(matrix, A, samples)
        U, S, Vt = thin_svd(matrix)
        parts.append((U[..., :k], S, Vt[:, :k].mT, matrix.square().sum((1, 2))))
    U, S, V, square = (torch.cat(column) for column in zip(*parts, strict=True))
    signs = fixed_signs(V)
    U, V = U * signs, V * signs
    floor = max(A.shape[1:]) * A.eps * S[:, :1]
    residuals = _residuals(A, U, S[:, :k], V)
    return Triplets(
        U=U,
        S=S[:, :k],
        V=V,
        residuals=residuals,
        converged=residuals <= _tolerance(A) * S[:, :1],
        counted=_counted(S[:, :k], residuals, floor),
        rank=(floor < S).sum(1).double(),
        above=(share * S[:, :1] < S).sum(1).double(),
        square=square,
        square_error=torch.zeros_like(square),
        route="dense",
    )


def _iterative(A: Operator, k: int, share: float, tolerance: float, max_products: int | None, seed: int) -> Triplets:
    found = svd(A, k, tol=tolerance, max_products=max_products, seed=seed, route="iterative")
    floor = max(A.shape[1:]) * A.eps * found.S[:, :1]
    counted = _counted(found.S, found.residuals, floor)
    rest, error = _rest(A, found.V, torch.Generator("cpu").manual_seed(seed_of("probes", seed)))
    above = (share * found.S[:, :1] < found.S).sum(1)
    whole = k == min(A.shape[1:])
    return Triplets(
        U=found.U,
        S=found.S,
        V=found.V,
        residuals=found.residuals,
        converged=found.converged,
        counted=counted,
        rank=torch.where((counted < k) | whole, counted.double(), float("nan")),
        above=torch.where((above < k) | whole, above.double(), float("nan")),
        square=found.S.square().sum(1) + rest,
        square_error=error,
        route="iterative",
    )


def _rest(A: Operator, V: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """|A (I - V V^T)|_F^2 and its standard error, per sample, from the same signs for all."""
    signs = torch.randint(0, 2, (A.shape[2], PROBES), generator=generator, device="cpu").mul(2).sub(1)
    z = signs.to(V)
    squares = A.matmat(z - V @ (V.mT @ z)).square().sum(1)  # B, PROBES
    return squares.mean(1), squares.std(1) / PROBES**0.5


def _residuals(A: Operator, U: Tensor, S: Tensor, V: Tensor) -> Tensor:
    """From fresh products on both sides."""
    forward = torch.linalg.vector_norm(A.matmat(V) - S[:, None] * U, dim=1)
    backward = torch.linalg.vector_norm(A.rmatmat(U) - S[:, None] * V, dim=1)
    return torch.maximum(forward, backward)


def _counted(S: Tensor, residuals: Tensor, floor: Tensor) -> Tensor:
    return (torch.maximum(residuals, floor) < S).cumprod(1).sum(1)


def _tolerance(A: Operator) -> float:
    """Of residuals, relative to the largest value; what the operator's own arithmetic can reach."""
    return float(A.eps ** (2 / 3))


def _pieces(A: Operator) -> list[list[int]]:
    """Samples whose matrices are in memory together."""
    batch, m, n = A.shape
    at_once = max(1, int(plan(A).free / 4 // (32 * m * n)))
    return [list(range(start, min(start + at_once, batch))) for start in range(0, batch, at_once)]
