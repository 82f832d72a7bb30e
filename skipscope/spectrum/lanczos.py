"""Eigenvalues at the ends of the spectrum of a batch of symmetric operators, and inertia.

Block Lanczos (Cullum and Donath 1974; Golub and Underwood 1977) with thick restart (Wu and Simon 2000; the symmetric
Krylov-Schur method of Stewart 2001): from an orthonormal block N,

    H N = V C + N' K

by full orthogonalisation against the basis V, which includes N; N' is next. The projected matrix V^T H V is block
tridiagonal but for the rows and columns after a restart.

Cost of a cycle: p - keep products, 4 n p (p - keep) operations twice to orthogonalise, an eigendecomposition of p x p.

The residual of a pair is |H v - l v|, from a fresh product; some eigenvalue lies within it of l.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator, asked_once
from skipscope.numerics import measuring
from skipscope.renamed import renamed_parameters
from skipscope.spectrum.assembly import Assembled, assembled
from skipscope.spectrum.checks import check_adjoint, check_finite, check_options, named_route
from skipscope.spectrum.krylov import Krylov
from skipscope.spectrum.orthonormal import fixed_signs
from skipscope.spectrum.plan import DENSE_BYTES, Costs, Route, costs
from skipscope.spectrum.rounds import iterate
from skipscope.spectrum.scale import Accuracy, default_tolerance, fresh_products, upper
from skipscope.spectrum.unseen import FAILURE, angle, eigenvalue_bounds, ends_bound, steps_for_end

Which = Literal["largest", "smallest", "magnitude"]


@dataclass(frozen=True)
class Eigs:
    """k eigenpairs of every sample. Values come with the wanted end first; the entry of a vector that is largest in
    magnitude is positive."""

    values: Tensor  # B, k
    vectors: Tensor  # B, n, k
    residuals: Tensor  # B, k: |H v - l v|
    converged: Tensor  # B, k: the residual is at most the tolerance times the largest magnitude, and the values tried
    iterations: Tensor  # B: steps of a block
    products: Tensor  # B: vectors multiplied by H
    missed_at_most: Tensor  # B: the probability that a wanted value was missed; NaN where nothing is proved of that
    route: str  # "dense" or "iterative"


@dataclass(frozen=True)
class Inertia:
    """How many eigenvalues of every sample are negative, zero (up to `tolerance` in magnitude) and positive.

    `tolerance` is what was asked for, or what the matrix is known to where that is larger."""

    negative: Tensor  # B
    zero: Tensor  # B
    positive: Tensor  # B
    tolerance: Tensor  # B


@asked_once()
@measuring()  # a user's autocast or TF32 would be in the bases too
def eigs(
    H: Operator,
    k: int = 10,
    *,
    which: Which = "largest",
    tol: float | None = None,
    max_products: int | None = None,
    block: int | None = None,
    seed: int = 0,
    route: Route = "auto",
) -> Eigs:
    """The k largest, smallest (most negative) or largest in magnitude of the eigenvalues, with their vectors.

    `tol` bounds the residuals, relative to the largest magnitude; eps^(2/3) unless given. `max_products` bounds the
    products of each sample (100 times the basis size unless given); what has not converged by then is returned with
    `converged` False. `block` is the number of vectors in a product. The route is the cheaper of the two
    (`plan.costs`).
    """
    _check_square(H)
    route = named_route(route)
    check_options(H, k, which, ("largest", "smallest", "magnitude"), tol, block, max_products, route)
    batch, _, n = H.shape
    sizes = costs(H.shape, k, block or H.vectors_at_once, decomposition=9.0 * n**3, sides=1)
    tolerance = default_tolerance(H.dtype) if tol is None else tol
    if route == "auto":
        route = sizes.route(H.device)
    iterations, products = [0] * batch, [n] * batch
    missed = torch.zeros(batch, dtype=torch.float64, device="cpu")
    if route == "dense":
        values, vectors, accuracy = _dense(H, k, which, sizes)
        image = _images(H, vectors, accuracy)  # B, n, k
    else:
        krylov = Lanczos(H, which, sizes.block, seed)
        _, _, vectors = iterate(krylov, k, sizes, tolerance, max_products or 100 * sizes.subspace)
        accuracy, iterations, products, missed = krylov.accuracy, krylov.iterations, krylov.products, krylov.missed
        image = _images(H, vectors, accuracy)
        values = (vectors.double() * image).sum(1)  # the Rayleigh quotient
    vectors = vectors.double()
    residuals = torch.linalg.vector_norm(image - values[:, None] * vectors, dim=1)  # B, k
    order = _order(values, which)
    vectors = vectors.gather(2, order[:, None].expand(vectors.shape))
    values, residuals, converged = accuracy.stated(
        values.gather(1, order), residuals.gather(1, order), tolerance, H.dtype
    )
    return Eigs(
        values=values,
        vectors=(vectors * fixed_signs(vectors)).to(H.dtype),
        residuals=residuals,
        converged=converged,
        iterations=torch.tensor(iterations, device="cpu"),
        products=torch.tensor(products, device="cpu") + k,
        missed_at_most=missed,
        route=route,
    )


@renamed_parameters(positional=("tol",))
def inertia(H: Operator, *, tol: float | None = None) -> Inertia:
    """Counts of negative, zero and positive eigenvalues, from the matrices in float64.

    An eigenvalue counts as zero when its magnitude is at most `tol` times the largest; n eps of the operator's own type
    unless given, so that a float32 operator is not counted more finely than it is known.
    """
    _check_square(H)
    _, _, n = H.shape
    sizes = costs(H.shape, 1, None, decomposition=9.0 * n**3, sides=1)
    if sizes.dense_bytes > DENSE_BYTES:
        raise InputError(
            f"inertia of {H.name} of shape {H.shape} needs the matrix itself: {sizes.dense_bytes / 2**30:.1f} GiB "
            f"per sample in float64 with its work space, more than {DENSE_BYTES / 2**30:.0f} GiB; restrict the "
            "operator, or look at the ends of the spectrum with eigs and at the rest with a spectral density"
        )
    tol = n * torch.finfo(H.dtype).eps if tol is None else tol
    found = []
    for matrix, known in _matrices(H, sizes):
        values = torch.linalg.eigvalsh(matrix)  # B, n in the unit
        tolerance = torch.maximum(tol * values.abs().amax(1), known.margin.to(values.device))  # B
        negative, positive = (values < -tolerance[:, None]).sum(1), (values > tolerance[:, None]).sum(1)
        found.append((negative, n - negative - positive, positive, upper(tolerance, known.exponent)))
    return Inertia(*(torch.cat(column) for column in zip(*found, strict=True)))


class Lanczos(Krylov):
    sides = 1

    def __init__(self, operator: Operator, which: Which, block: int, seed: int) -> None:
        super().__init__(operator, block, seed)
        self.which = which

    def expand(self) -> None:
        old, linked = self.size, self.expected
        image = self.multiply(self.next)  # B, b, n
        own = self.next @ image.mT  # B, b, b
        expected = None if linked is None else torch.cat([linked, own], 1)
        self.right.append(self.next)
        self.next, C, K, scale = self.orthonormalised(image, self.right, expected)
        if not self.given:
            symmetric = torch.cat([self.coupling.mT, C[:, old:].mT], 1)  # B, p + b, b: what C should be
            check_adjoint(C, symmetric, self.operator, scale)
        left = torch.cat([self.projected, C[:, :old].mT], 1)  # B, p + b, p
        self.projected = torch.cat([left, C], 2)
        self.grown(K)

    def rank(self, values: Tensor) -> Tensor:
        return _rank(values, self.which)

    @property
    def angle(self) -> float:
        """Two ends have to hold where magnitudes are asked for."""
        return angle(self.whole.shape[1], self.block, FAILURE / 2 if self.which == "magnitude" else FAILURE)

    def bounds(self, values: Tensor, coupling: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        rest = self.rest
        seen = torch.linalg.eigvalsh((rest + rest.mT) / 2)
        ends = seen[:, 0], seen[:, -1]  # B, B
        lowest, highest = ends if self.complete else ends_bound(*ends, self.angle, self.steps)
        ranks = {
            "largest": (above := eigenvalue_bounds(values, coupling, highest)),  # B, w + b
            "smallest": (below := eigenvalue_bounds(-values, coupling, -lowest)),  # of -H
            "magnitude": torch.cat([above, below], 1),
        }[self.which]

        def steps_needed(rank: Tensor) -> Tensor:
            above = steps_for_end(*ends, self.angle, rank)
            below = steps_for_end(-ends[1], -ends[0], self.angle, rank)
            return {"largest": above, "smallest": below, "magnitude": torch.maximum(above, below)}[self.which]

        return ranks.sort(1, descending=True).values, steps_needed

    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh((self.projected + self.projected.mT) / 2)
        order = _order(values, self.which)
        values, vectors = values.gather(1, order), vectors.gather(2, order[:, None].expand(vectors.shape))
        return values, vectors, vectors


def _rank(values: Tensor, which: Which) -> Tensor:
    return {"largest": values, "smallest": -values, "magnitude": values.abs()}[which]


def _order(values: Tensor, which: Which) -> Tensor:
    return _rank(values, which).argsort(dim=1, descending=True, stable=True)


def _dense(H: Operator, k: int, which: Which, sizes: Costs) -> tuple[Tensor, Tensor, Accuracy]:
    """Values in their unit and vectors, from the matrices in float64."""
    parts, accuracies = [], []
    for matrix, known in _matrices(H, sizes):
        values, vectors = torch.linalg.eigh(matrix)
        order = _order(values, which)[:, :k]
        chosen = vectors.gather(2, order[:, None].expand(-1, vectors.shape[1], -1))
        parts.append((values.gather(1, order), chosen))
        scale = values.abs().amax(1)
        accuracies.append(Accuracy(known.exponent, scale, known.hidden, torch.ones_like(scale, dtype=torch.bool)))
    values, vectors = (torch.cat(column) for column in zip(*parts, strict=True))
    return values, vectors.to(H.dtype), Accuracy.together(accuracies)


def _matrices(H: Operator, sizes: Costs) -> Iterator[tuple[Tensor, Assembled]]:
    """The symmetric matrices in float64 and in their units, some samples at a time."""
    for samples in sizes.parts(H.shape[0]):
        known = assembled(H, samples)
        matrix = known.matrix
        check_adjoint(matrix, matrix.mT, H, matrix.abs().amax((1, 2)))
        yield (matrix + matrix.mT) / 2, known


def _images(H: Operator, vectors: Tensor, accuracy: Accuracy) -> Tensor:
    image = fresh_products(H.matmat, vectors, accuracy.exponent)
    check_finite(image, H, range(H.shape[0]))
    return image


def _check_square(H: Operator) -> None:
    if H.shape[1] != H.shape[2]:
        raise InputError(f"{H.name} of shape {H.shape} is not square; its singular values come from svd")
