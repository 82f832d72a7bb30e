"""The largest (or smallest) singular triplets of a batch of operators.

dense      the matrices are assembled in float64 and decomposed; all values are known
iterative  of matrices that are there, with more than 1024 rows and columns: subspace iteration with Chebyshev filters
           (`filtered_subspace`)
iterative  from products alone: block Golub-Kahan-Lanczos bidiagonalisation (Golub and Kahan 1965; in blocks, Golub, Luk
           and Overton 1981) with thick restart (Baglama and Reichel 2005)

From an orthonormal block N on the smaller side, the iteration makes

    A N = U C + U' R,        A^T U' = V D + N' K,

both by full orthogonalisation; U' and N join the bases and N' is next. The projected matrix U^T A V is upper triangular
but for the columns after a restart. A^T A is never formed: a value is as exact as the operator's products, at eps |A|,
not at sqrt(eps) |A|. All samples move together; those that have converged leave. On a GPU, which has to finish all that
it was given before it answers, a stretch of steps runs unasked: whether every block came out orthonormal is seen at its
end, and a stretch with one that did not is taken back and goes step by step.

Cost of a cycle: (p - keep) products on each side, 8 (m + n) p (p - keep) operations to orthogonalise, an SVD of p x p.

A triplet's residual is max(|A v - s u|, |A^T u - s v|), from fresh products. It is the norm of the smallest change
of A for which (u, s, v) is an exact triplet (Parrott 1978), so that some singular value lies within it of s (Weyl).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from skipscope.cores import threads_for
from skipscope.linear.operator import Dense, Operator, asked_once
from skipscope.numerics import measuring, random_numbers, signs
from skipscope.spectrum.assembly import assembled, thin_svd
from skipscope.spectrum.checks import check_adjoint, check_finite, check_options, named_route
from skipscope.spectrum.filtered_subspace import block_width, leading_triplets
from skipscope.spectrum.krylov import Krylov
from skipscope.spectrum.orthonormal import Coefficients, fixed_signs, on_cpu, orthonormalise_unasked
from skipscope.spectrum.plan import DENSE_SIDE, Costs, Route, check_fits, costs
from skipscope.spectrum.rounds import iterate
from skipscope.spectrum.scale import Accuracy, default_tolerance, exponents, fresh_products, scaled
from skipscope.spectrum.unseen import norm_bound, singular_value_bounds, steps_for_norm

Which = Literal["largest", "smallest"]
STEPS = {"largest": 14, "smallest": 40}  # of a cycle: small values need polynomials of a high degree
WIDEST_BLOCK = 8  # times the vectors of a filtered block are in a matrix at least
UNASKED_ON = ("cuda",)  # where a question costs more than a step
PROBES = 32  # random signs for what the triplets leave of |A|_F^2


@dataclass(frozen=True)
class SVD:
    """k singular triplets of every sample, A v = s u and A^T u = s v to their residuals.

    Values come with the wanted end first. The entry of v that is largest in magnitude is positive. A value counts as
    zero within max(m, n) eps s_1, eps that of the arithmetic behind the products, or within its residual where that is
    larger.
    """

    U: Tensor  # B, m, k
    S: Tensor  # B, k
    V: Tensor  # B, n, k
    residuals: Tensor  # B, k: max(|A v - s u|, |A^T u - s v|)
    converged: Tensor  # B, k: the residual is at most the tolerance times the largest value, and the values were tried
    iterations: Tensor  # B: steps of a block
    products: Tensor  # B: vectors multiplied by A or A^T
    missed_at_most: Tensor  # B: the probability that a wanted value was missed; NaN where nothing is proved of that
    route: str  # "dense" or "iterative"
    which: str  # "largest" or "smallest"
    counted: Tensor  # B: how many of the k values, from the largest on, are above zero for certain
    rank: Tensor  # B: numerical rank, as float64; NaN where the k values do not determine it
    all_values: Tensor | None  # B, min(m, n): every singular value in float64, descending; None by the iterative route
    square_norm: Tensor | None  # B: |A|_F^2, the sum of the squares of all entries; None where there is no matrix

    def count_above(self, share: float) -> Tensor:
        """(B,) in float64: how many singular values are above this share of the largest; NaN where there may be more
        than the k that are known."""
        if self.all_values is not None:
            return (share * self.all_values[:, :1] < self.all_values).sum(1).double()
        if self.which == "smallest":
            return torch.full_like(self.rank, torch.nan)
        above = (share * self.S[:, :1] < self.S).sum(1)
        whole = self.S.shape[1] == min(self.U.shape[1], self.V.shape[1])
        return torch.where((above < self.S.shape[1]) | whole, above.double(), torch.nan)


@asked_once()
@measuring()  # a user's autocast or TF32 would be in the bases too
def svd(
    A: Operator,
    k: int = 10,
    *,
    which: Which = "largest",
    tol: float | None = None,
    max_products: int | None = None,
    block: int | None = None,
    seed: int = 0,
    route: Route = "auto",
    with_rank: bool = False,
) -> SVD:
    """The k largest or smallest singular triplets.

    tol: bounds the residuals, relative to the largest singular value; eps^(2/3) unless given. max_products: bounds
    the products of each sample (100 times the basis size unless given); what has not converged by then is returned with
    `converged` False. block: the number of vectors in a product.

    route: "auto" takes the cheaper of "dense" and "iterative" (`plan.costs`). It prefers the dense one, wherever that
    fits, for the smallest values: seen from products alone they converge slowly, and one that has not converged is too
    large. with_rank: it prefers the dense one up to min(m, n) = 1024 as well, so that the rank and the number of values
    above a share of the largest are known.

    A value at zero has no left vector in the range of A: the iterative route then returns the value and v with a
    residual that says that u is not one.
    """
    route = named_route(route)
    check_options(A, k, which, ("largest", "smallest"), tol, block, max_products, route)
    _, m, n = A.shape
    small, large = min(m, n), max(m, n)
    sizes = costs(
        A.shape, k, block, decomposition=6.0 * large * small**2 + 20.0 * small**3, sides=2, steps=STEPS[which]
    )
    tolerance = default_tolerance(A.dtype) if tol is None else tol
    if route == "dense":
        check_fits(A)
    bounded = max_products is not None or block is not None  # which mean something in the other iteration
    if route == "auto" and isinstance(A, Dense) and which == "largest" and small > DENSE_SIDE and not bounded:
        found = _by_filters(A, k, tolerance, seed)
        if found is not None:
            return found
    if route == "auto":
        route = sizes.route(A.device, prefer_dense=which == "smallest" or (with_rank and small <= DENSE_SIDE))
    if route == "dense":
        return _by_matrices(A, k, which, tolerance, sizes)
    tall = A if m >= n else A.T
    krylov = GolubKahan(tall, which, tolerance, sizes.block, seed)
    _, U, V = iterate(krylov, k, sizes, tolerance, max_products or 100 * sizes.subspace)
    U, V = (U, V) if m >= n else (V, U)
    return _finished(
        A, None, U, V, which, tolerance, krylov.accuracy, krylov.iterations, krylov.products, krylov.missed
    )


def square_norm(A: Operator, found: SVD, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """|A|_F^2 of every sample (B,) and its standard error.

    Exact where the matrices were assembled. Otherwise the squares of the values that were found, and an estimate of
    what they leave, |A (I - V V^T)|_F^2, from the same random signs for all samples.
    """
    if found.square_norm is not None:
        return found.square_norm, torch.zeros_like(found.square_norm)
    vectors = signs((A.shape[2], PROBES), random_numbers("probes", seed)).to(found.V)
    squares = A.matmat(vectors - found.V @ (found.V.mT @ vectors)).square().sum(1)  # B, PROBES
    return found.S.square().sum(1) + squares.mean(1), squares.std(1) / PROBES**0.5


class GolubKahan(Krylov):
    def __init__(self, operator: Operator, which: str, tolerance: float, block: int, seed: int) -> None:
        super().__init__(operator, block, seed)
        self.which, self.zero = which, tolerance / 4

    def expand(self) -> None:
        old, new = self.size, self.next.shape[1]
        expected = self.expected  # first: to send it, a GPU has to finish all that it was given
        left, C, R, _ = self.orthonormalised(self.multiply(self.next), self.left, expected)
        self.left.append(left)
        self.right.append(self.next)
        # A^T U' = V D + N' K, and D is zero but for the newest block of V, where it is R^T.
        expected = R.mT.to(left) if old and R.shape[1] == new else None
        back = self.multiply(left, transposed=True)  # B, b, n
        self.next, D, K, scale = self.orthonormalised(back, self.right, expected)
        if not old:
            check_adjoint(D, R.mT, self.operator, scale)
        self._project(C, R)
        self.grown(K)

    def advance(self, steps: int) -> None:
        """On a GPU without a question to it but for the first step, as long as that goes well."""
        if self.operator.device.type in UNASKED_ON:
            while steps and self.linked is None and not self.complete:
                self.expand()
                steps -= 1
            whole = (min(self.whole.shape[1:]) - self.size) // self.block - 1  # blocks that are there for certain
            if min(steps, whole) > 1 and self._advance_unasked(min(steps, whole)):
                steps -= min(steps, whole)
        super().advance(steps)

    def _advance_unasked(self, steps: int) -> bool:
        """Whether every block came out orthonormal; otherwise all is as it was before."""
        before, start = self.size, self.next
        expected, small = self.expected, []
        assert expected is not None, "the first step was asked for"
        for _ in range(steps):
            left, lower, of_left = orthonormalise_unasked(self.multiply(self.next), self.left.rows, expected)
            self.left.append(left)
            self.right.append(self.next)
            back = self.multiply(left, transposed=True)
            self.next, expected, of_right = orthonormalise_unasked(back, self.right.rows, lower)
            small += [of_left, of_right]
        arrived = iter(on_cpu(*(part for parts in small for part in parts)))
        scale, found = self.scale[self._places], []
        with self.few_threads():
            for parts in small:
                found.append(Coefficients([next(arrived) for _ in parts], scale, self.next.dtype))
                scale = found[-1].scale
        if not all(each.independent and each.is_kept() for each in found):
            self.left.count = self.right.count = before
            self.next = start
            return False
        self.scale[self._places] = scale
        for of_push, of_pull in zip(found[::2], found[1::2], strict=True):
            self._project(of_push.C, of_push.R)
            self.grown(of_pull.R)
        return True

    def _project(self, C: Tensor, R: Tensor) -> None:
        """The projected matrix with another block: the product of the newest of V is C in U, and R in its newest."""
        lower = torch.cat([R.new_zeros(len(R), R.shape[1], self.projected.shape[2]), R], 2)
        self.projected = torch.cat([torch.cat([self.projected, C], 2), lower], 1)

    def rank(self, values: Tensor) -> Tensor:
        return -values if self.which == "smallest" else values

    @property
    def can_bound(self) -> bool:  # seen from the largest, the smallest stand too close together
        return self.which == "largest"

    def bounds(self, values: Tensor, coupling: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        rest = self.rest
        seen = torch.linalg.eigvalsh(rest.mT @ rest)[:, -1].clamp(min=0).sqrt()
        norm = seen if self.complete else norm_bound(seen, self.angle, self.steps)
        bounds = singular_value_bounds(values, coupling, norm)
        return bounds, lambda rank: steps_for_norm(seen, self.angle, rank)

    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        x, values, yt = thin_svd(self.projected)
        y = yt.mT
        return (values.flip(1), x.flip(2), y.flip(2)) if self.which == "smallest" else (values, x, y)

    def estimates(self, values: Tensor, left: Tensor) -> Tensor:
        """Where s = |A v| is as good as zero, v is a null vector, whatever u is: there is nothing to wait for."""
        residuals = super().estimates(values, left)
        zero = values <= self.zero * self.scale[self.samples, None]
        return torch.where(zero, 0.0, residuals) if self.which == "smallest" else residuals


def _by_matrices(A: Operator, k: int, which: Which, tolerance: float, sizes: Costs) -> SVD:
    """From the matrices in float64, some samples at a time."""
    parts, known = [], []
    for samples in sizes.parts(A.shape[0]):
        entries = assembled(A, samples)
        U, S, Vt = thin_svd(entries.matrix)
        wanted = slice(0, k) if which == "largest" else slice(S.shape[1] - k, None)
        squares = scaled(entries.matrix.square().sum((1, 2)), 2 * entries.exponent)
        parts.append((S, U[:, :, wanted], Vt[:, wanted].mT, squares))
        known.append(Accuracy(entries.exponent, S[:, 0], entries.hidden, torch.ones_like(S[:, 0], dtype=torch.bool)))
    values, U, V, squares = (torch.cat(column) for column in zip(*parts, strict=True))
    U, V = U.to(A.dtype), V.to(A.dtype)
    iterations, products = [0] * A.shape[0], [min(A.shape[1:])] * A.shape[0]
    matrices, missed = (values, squares), torch.zeros(A.shape[0], dtype=torch.float64, device="cpu")
    return _finished(A, matrices, U, V, which, tolerance, Accuracy.together(known), iterations, products, missed)


def _by_filters(A: Dense, k: int, tolerance: float, seed: int) -> SVD | None:
    """None where a block for so many values is no small part of the matrix, or where they do not converge."""
    _, m, n = A.shape
    if WIDEST_BLOCK * block_width(k) > min(m, n):
        return None
    exponent = exponents(A.matrix)
    matrix = scaled(A.double().matrix, -exponent)
    check_finite(matrix, A, range(A.shape[0]))
    with threads_for(matrix.numel(), A.device):
        found = leading_triplets(matrix if m >= n else matrix.mT, k, max(tolerance, 16 * A.eps), seed)
    if found is None:
        return None
    U, V = (found.U, found.V) if m >= n else (found.V, found.U)
    accuracy = Accuracy(exponent, found.S[:, 0], torch.zeros(A.shape[0], device="cpu"), found.settled)
    batch = A.shape[0]
    counts = [found.filters] * batch, [found.products] * batch
    unknown = torch.full((batch,), torch.nan, dtype=torch.float64, device="cpu")
    result = _finished(A, None, U.to(A.dtype), V.to(A.dtype), "largest", tolerance, accuracy, *counts, unknown)
    return replace(result, square_norm=scaled(matrix.square().sum((1, 2)), 2 * exponent))


def _finished(
    A: Operator,
    matrices: tuple[Tensor, Tensor] | None,
    U: Tensor,
    V: Tensor,
    which: Which,
    tolerance: float,
    accuracy: Accuracy,
    iterations: Sequence[int],
    products: Sequence[int],
    missed: Tensor,
) -> SVD:
    """Rayleigh quotients where there are no values yet, order, signs, and residuals from fresh products.

    matrices: all values (B, min(m, n)) in their unit and |A|_F^2 (B,), where the matrices were decomposed.
    """
    k, small, dtype = U.shape[2], min(A.shape[1:]), A.dtype
    image = fresh_products(A.matmat, V, accuracy.exponent)  # B, m, k
    back = fresh_products(A.rmatmat, U, accuracy.exponent)  # B, n, k
    for product in (image, back):
        check_finite(product, A, range(A.shape[0]))
    U, V = U.double(), V.double()
    if matrices is not None:
        S = matrices[0][:, :k] if which == "largest" else matrices[0][:, small - k :]
    else:
        S = (U * image).sum(1)  # B, k
        U, back = U * torch.where(S < 0, -1.0, 1.0)[:, None], back * torch.where(S < 0, -1.0, 1.0)[:, None]
        S = S.abs()
    residuals = torch.maximum(
        torch.linalg.vector_norm(image - S[:, None] * U, dim=1), torch.linalg.vector_norm(back - S[:, None] * V, dim=1)
    )
    order = S.argsort(dim=1, descending=which == "largest", stable=True)
    S, residuals = S.gather(1, order), residuals.gather(1, order)
    U, V = (vectors.gather(2, order[:, None].expand(vectors.shape)) for vectors in (U, V))
    orientation = fixed_signs(V)
    S, residuals, converged = accuracy.stated(S, residuals, tolerance, dtype)
    all_values = None if matrices is None else scaled(matrices[0], accuracy.exponent)
    counted, rank = _counted(A, S, residuals, which, accuracy, all_values)
    return SVD(
        U=(U * orientation).to(dtype),
        S=S,
        V=(V * orientation).to(dtype),
        residuals=residuals,
        converged=converged,
        iterations=torch.tensor(iterations, device="cpu"),
        products=torch.tensor(products, device="cpu") + 2 * k,
        missed_at_most=missed,
        route="iterative" if matrices is None else "dense",
        which=which,
        counted=counted,
        rank=rank,
        all_values=all_values,
        square_norm=None if matrices is None else matrices[1],
    )


def _counted(
    A: Operator, S: Tensor, residuals: Tensor, which: Which, accuracy: Accuracy, all_values: Tensor | None
) -> tuple[Tensor, Tensor]:
    """How many of the values are above zero for certain, and the numerical rank, (B,) each."""
    k, small = S.shape[1], min(A.shape[1:])
    if all_values is not None:
        largest = all_values[:, :1]
    elif which == "largest":
        largest = S[:, :1]
    else:
        largest = scaled(accuracy.scale, accuracy.exponent)[:, None].to(S)
    zero = max(A.shape[1:]) * A.eps * largest  # B, 1
    above = torch.maximum(residuals, zero) < S
    counted = above.cumprod(1).sum(1) if which == "largest" else above.sum(1)
    if all_values is not None:
        return counted, (zero < all_values).sum(1).double()
    if which == "largest":
        return counted, torch.where((counted < k) | (k == small), counted.double(), torch.nan)
    return counted, torch.where((counted > 0) | (k == small), (small - k + counted).double(), torch.nan)
