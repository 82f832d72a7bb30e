"""The largest (or smallest) singular triplets of a batch of operators.

Block Golub-Kahan-Lanczos bidiagonalisation (Golub and Kahan 1965; in blocks, Golub, Luk and Overton 1981) with thick
restart (Baglama and Reichel 2005): from an orthonormal block N on the smaller side,

    A N = U C + U' R,        A^T U' = V D + N' K,

both by full orthogonalisation; U' and N join the bases and N' is next. The projected matrix U^T A V is upper triangular
but for the columns after a restart. A^T A is never formed: a value is as exact as the operator's products, at eps |A|,
not at sqrt(eps) |A|. All samples move together; those that have converged leave.

Cost of a cycle: (p - keep) products on each side, 8 (m + n) p (p - keep) operations to orthogonalise, an SVD of p x p.

A triplet's residual is max(|A v - s u|, |A^T u - s v|), from fresh products. It is the norm of the smallest change
of A for which (u, s, v) is an exact triplet (Parrott 1978), so that some singular value lies within it of s (Weyl).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from skipscope.linear.operator import Operator
from skipscope.spectrum.assembly import assembled
from skipscope.spectrum.dense import thin_svd
from skipscope.spectrum.krylov import (
    Ground,
    Krylov,
    Plan,
    check_adjoint,
    check_finite,
    check_options,
    default_tolerance,
    fixed_signs,
    iterate,
    orthonormalise,
    plan,
)
from skipscope.spectrum.scale import fresh_products

STEPS = {"largest": 14, "smallest": 40}  # of a cycle: small values need polynomials of a high degree


@dataclass(frozen=True)
class SVD:
    """k singular triplets of every sample, A v = s u and A^T u = s v to their residuals.

    Values come with the wanted end first. The entry of v that is largest in magnitude is positive.
    """

    U: Tensor  # B, m, k
    S: Tensor  # B, k
    V: Tensor  # B, n, k
    residuals: Tensor  # B, k: max(|A v - s u|, |A^T u - s v|)
    converged: Tensor  # B, k: the residual is at most the tolerance times the largest value, and the values were tried
    iterations: Tensor  # B: steps of a block
    products: Tensor  # B: vectors multiplied by A or A^T
    route: str  # "dense" or "iterative"


def svd(
    A: Operator,
    k: int = 10,
    *,
    which: Literal["largest", "smallest"] = "largest",
    tol: float | None = None,
    max_products: int | None = None,
    block: int | None = None,
    seed: int = 0,
    route: Literal["dense", "iterative"] | None = None,
) -> SVD:
    """The k largest or smallest singular triplets.

    `tol` bounds the residuals, relative to the largest singular value; eps^(2/3) unless given. `max_products` bounds
    the products of each sample (100 times the basis size unless given); what has not converged by then is returned with
    `converged` False. `block` is the number of vectors in a product. The route is the cheaper of the two
    (`krylov.plan`), for the smallest values the dense one wherever it fits: seen from products alone they converge
    slowly, and one that has not converged is too large. A value at zero has no left vector in the range of A: the
    iterative route then returns the value and v with a residual that says that u is not one.
    """
    check_options(A, k, which, ("largest", "smallest"), tol, block, max_products, route)
    batch, m, n = A.shape
    small, large = min(m, n), max(m, n)
    sizes = plan(A.shape, k, block, decomposition=6.0 * large * small**2 + 20.0 * small**3, sides=2, steps=STEPS[which])
    tolerance = default_tolerance(A.dtype) if tol is None else tol
    route = route or sizes.route(prefer_dense=which == "smallest")
    iterations, products = [0] * batch, [small] * batch
    values: Tensor | None = None
    if route == "dense":
        values, U, V, ground = _dense(A, k, which, sizes)
    else:
        tall = A if m >= n else A.T
        krylov = GolubKahan(tall, which, tolerance, sizes.block, seed)
        _, U, V = iterate(krylov, k, sizes, tolerance, max_products or 100 * sizes.subspace)
        U, V = (U, V) if m >= n else (V, U)
        ground, iterations, products = krylov.ground, krylov.iterations, krylov.products
    return _finish(A, values, U, V, which, tolerance, ground, iterations, products, route)


class GolubKahan(Krylov):
    def __init__(self, operator: Operator, which: str, tolerance: float, block: int, seed: int) -> None:
        super().__init__(operator, block, seed)
        self.which, self.zero = which, tolerance / 4

    def expand(self) -> None:
        old, new = self.size, self.next.shape[2]
        image = self.multiply(self.next)  # B, m, b
        left, C, R = orthonormalise(image, self.left, self.scale[self.samples], self.generator)
        lower = torch.cat([R.new_zeros(len(R), new, old), R], 2)
        self.projected = torch.cat([torch.cat([self.projected, C], 2), lower], 1)
        self.left, self.right = torch.cat([self.left, left], 2), torch.cat([self.right, self.next], 2)
        back = self.multiply(left, transposed=True)  # B, n, b
        self.next, D, K = orthonormalise(back, self.right, self.scale[self.samples], self.generator)
        if not old:
            check_adjoint(D, R.mT, self.operator, self.scale[self.samples])
        self.coupling = torch.cat([K.new_zeros(len(K), K.shape[1], old), K], 2)
        self.count_step()

    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        x, values, yt = torch.linalg.svd(self.projected.double().cpu())
        y = yt.mT
        if self.which == "smallest":
            x, values, y = x.flip(2), values.flip(1), y.flip(2)
        return values.to(self.projected), x.to(self.projected), y.to(self.projected)

    def estimates(self, values: Tensor, left: Tensor) -> Tensor:
        """Where s = |A v| is as good as zero, v is a null vector, whatever u is: there is nothing to wait for."""
        residuals = super().estimates(values, left)
        zero = values <= self.zero * self.scale[self.samples, None]
        return torch.where(zero, 0.0, residuals) if self.which == "smallest" else residuals


def _dense(A: Operator, k: int, which: str, sizes: Plan) -> tuple[Tensor, Tensor, Tensor, Ground]:
    """Values in their unit, U and V, from the matrices in float64."""
    parts, grounds = [], []
    for samples in sizes.parts(A.shape[0]):
        known = assembled(A, samples)
        U, S, Vt = thin_svd(known.matrix)
        wanted = slice(0, k) if which == "largest" else slice(S.shape[1] - k, None)
        parts.append((S[:, wanted], U[:, :, wanted], Vt[:, wanted].mT))
        grounds.append(Ground(known.exponent, S[:, 0], known.hidden, torch.ones_like(S[:, 0], dtype=torch.bool)))
    S, U, V = (torch.cat(column) for column in zip(*parts, strict=True))
    return S, U.to(A.dtype), V.to(A.dtype), Ground.together(grounds)


def _finish(
    A: Operator,
    S: Tensor | None,
    U: Tensor,
    V: Tensor,
    which: str,
    tolerance: float,
    ground: Ground,
    iterations: Sequence[int],
    products: Sequence[int],
    route: str,
) -> SVD:
    """Rayleigh quotients where there are no values yet, order, signs, and residuals from fresh products."""
    k = U.shape[2]
    image = fresh_products(A.matmat, V, ground.exponent)  # B, m, k
    back = fresh_products(A.rmatmat, U, ground.exponent)  # B, n, k
    for product in (image, back):
        check_finite(product, A, range(A.shape[0]))
    U, V, dtype = U.double(), V.double(), A.dtype
    if S is None:
        S = (U * image).sum(1)  # B, k
        U, back = U * torch.where(S < 0, -1.0, 1.0)[:, None], back * torch.where(S < 0, -1.0, 1.0)[:, None]
        S = S.abs()
    residuals = torch.maximum(
        torch.linalg.vector_norm(image - S[:, None] * U, dim=1), torch.linalg.vector_norm(back - S[:, None] * V, dim=1)
    )
    order = S.argsort(dim=1, descending=which == "largest", stable=True)
    S, residuals = S.gather(1, order), residuals.gather(1, order)
    U, V = (vectors.gather(2, order[:, None].expand(vectors.shape)) for vectors in (U, V))
    signs = fixed_signs(V)
    S, residuals, converged = ground.stated(S, residuals, tolerance, dtype)
    return SVD(
        U=(U * signs).to(dtype),
        S=S,
        V=(V * signs).to(dtype),
        residuals=residuals,
        converged=converged,
        iterations=torch.tensor(iterations, device="cpu"),
        products=torch.tensor(products, device="cpu") + 2 * k,
        route=route,
    )
