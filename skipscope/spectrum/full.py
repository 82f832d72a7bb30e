"""All singular values of an operator, with a bound on their error.

The matrix is assembled in float64. Rows and columns that are exactly zero (an inactive ReLU makes a zero row) are
dropped and counted. Then one of three routes, the cheapest whose bound is within the wanted accuracy:

law    units with an identity skip: the eigenproblem of size 2 r of `linear.law`; the rest of the values are exactly 1
gram   square roots of the eigenvalues of A A^T (or A^T A, the smaller): values near zero lose half of the digits
svd    LAPACK's or cuSOLVER's QR iteration on the matrix itself: five to ten times the work, no loss

Bounds. With u the rounding unit and p the size of the eigenproblem, the computed Gram matrix and its eigenvalues are
off by at most d = C sqrt(p) u s1^2 (C = 10: rounding errors add up like a random walk; the worst case that could be
proved is sqrt(p) times larger and is never seen), so a value s is off by at most min(sqrt(d), d / s). On the law route
s1^2 is replaced by |R|^2 |M| where that is larger. The svd route and the assembly are off by C sqrt(p) u s1. To all of
them comes C times the estimated difference between products from the left and from the right: what cancels inside the
network is lost there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.jacobian import Jacobian
from skipscope.linear.law import Law, law_of
from skipscope.linear.operator import Dense, Operator
from skipscope.numerics import seed_of
from skipscope.spectrum.dense import svdvals
from skipscope.spectrum.plan import check_fits

ROUTES = ("law", "gram", "svd")
C = 10.0
ONE = 1e-7  # a value this close to 1 counts as one (if its bound allows to tell)
PROBES = 4
LAW_GAIN = 0.85  # the reduced problem must be this much smaller than the active rows to be worth its QR


@dataclass(frozen=True)
class Spectrum:
    """Singular values of each sample, descending, and what is known of them."""

    values: Tensor  # (B, min(m, n)) in float64
    bound: Tensor  # (B, min(m, n)): how far each may be from the exact one
    rank: Tensor  # (B,) values above `tolerance`
    tolerance: Tensor  # (B,) max(m, n) eps s1, or the bound at zero where that is larger
    zeros_at_least: Tensor  # (B,) proved: rows or columns that are exactly zero
    ones_at_least: Tensor  # (B,) proved: the law of units
    routes: tuple[str, ...]  # per sample
    shape: tuple[int, int, int]

    @property
    def zeros(self) -> Tensor:
        """(B,) values that are zero within the tolerance."""
        return self.values.shape[1] - self.rank

    @property
    def ones(self) -> Tensor:
        """(B,) values within 1e-7 (or their bound, where that is larger) of 1."""
        return ((self.values - 1).abs() <= self.bound.clamp_min(ONE)).sum(1)

    def share(self, low: float, high: float) -> Tensor:
        """(B,) the share of the values in [low, high]."""
        return ((self.values >= low) & (self.values <= high)).double().mean(1)

    def __repr__(self) -> str:
        largest = [float(f"{value:.4g}") for value in self.values[:, :1].flatten().tolist()]
        error = float(self.bound.max()) if self.bound.numel() else 0.0
        return (
            f"<Spectrum of {self.shape}: largest {largest}, rank {self.rank.tolist()}, at least "
            f"{self.zeros_at_least.tolist()} zeros and {self.ones_at_least.tolist()} ones, error below {error:.1e}>"
        )


def singular_values(A: Operator, *, accuracy: float = 1e-6, route: str | None = None) -> Spectrum:
    """All singular values of every sample.

    accuracy: the largest acceptable bound, relative to the largest value; decides between the routes.
    route: take this one ("law", "gram" or "svd") whatever it costs.
    """
    if route is not None and route not in ROUTES:
        raise InputError(f"route={route!r}: expected one of {', '.join(ROUTES)}")
    check_fits(A)
    law = law_of(*A.source) if isinstance(A, Jacobian) and A.source is not None else None
    if route == "law" and (law is None or not law.binary.all()):
        raise InputError(f"route='law': {A.name} is not a unit with an identity skip and a tail that passes 0 or 1")
    assembly = A.double().eps
    found = [_of_sample(A, law, sample, accuracy, route, assembly) for sample in range(A.shape[0])]
    values, bounds, zeros, routes = (list(column) for column in zip(*found, strict=True))
    stacked, bound = torch.stack(values), torch.stack(bounds)
    eps = torch.finfo(torch.float64).eps
    floor = torch.stack([_largest(v, b) for v, b in zip(values, bounds, strict=True)])
    tolerance = torch.maximum(max(A.shape[1:]) * eps * stacked[:, 0], floor) if stacked.shape[1] else floor
    ones = law.ones_at_least if law is not None else torch.zeros(A.shape[0], dtype=torch.long, device="cpu")
    return Spectrum(
        values=stacked,
        bound=bound,
        rank=(stacked > tolerance[:, None]).sum(1),
        tolerance=tolerance,
        zeros_at_least=torch.tensor(zeros, device="cpu"),
        ones_at_least=ones.cpu(),
        routes=tuple(routes),
        shape=A.shape,
    )


def _of_sample(
    A: Operator, law: Law | None, sample: int, accuracy: float, route: str | None, assembly: float
) -> tuple[Tensor, Tensor, int, str]:
    """Values, bounds, proved zeros and route of one sample; values on the CPU."""
    size = min(A.shape[1:])
    if law is not None and (route == "law" or (route is None and _law_is_cheaper(law, sample))):
        values, bound = _by_law(law, sample)
        bound = bound + C * _product_error(A.take([sample]).double(), None)
        if route == "law" or _acceptable(values, bound, accuracy):
            return _padded(values, size), _padded(bound, size), int(law.zeros_at_least[sample]), "law"
    one = A.take([sample]).double()
    matrix = one.dense()[0]
    if not torch.isfinite(matrix).all():
        raise InputError(f"{A.name} has NaN or infinite entries; check the weights and the batch")
    products = C * _product_error(one, matrix)
    rows, columns = matrix.ne(0).any(1), matrix.ne(0).any(0)
    matrix = matrix[rows][:, columns]
    zeros = size - min(matrix.shape)
    if route != "svd" and min(matrix.shape):
        values, bound = _by_gram(matrix, assembly)
        bound = bound + products
        if route == "gram" or _acceptable(values, bound, accuracy):
            return _padded(values, size), _padded(bound, size), zeros, "gram"
    values, bound = _by_svd(matrix, assembly)
    return _padded(values, size), _padded(bound + products, size), zeros, "svd"


def _product_error(A: Operator, matrix: Tensor | None) -> float:
    """An estimate of |E|_F, where E is the difference between an assembled matrix and the operator's transpose.

    Inside a network large terms may cancel, which no route can see; but products from the left and from the right
    then round in different ways. For Gaussian u and v the mean square of u^T (A v) - (A^T u)^T v is |E|_F^2.
    A: one sample. matrix: what its columns were assembled to, None where they were not.
    """
    if isinstance(A, Dense):
        return 0.0
    _, m, n = A.shape
    generator = torch.Generator("cpu").manual_seed(seed_of("probes", 0))
    u, v = (
        torch.randn(1, size, PROBES, dtype=torch.float64, generator=generator, device="cpu").to(A.device)
        for size in (m, n)
    )
    pushed = A.matmat(v) if matrix is None else matrix @ v
    difference = u.mT @ pushed - A.rmatmat(u).mT @ v  # 1, PROBES, PROBES
    return float(difference.square().mean().sqrt())


def _by_gram(matrix: Tensor, assembly: float) -> tuple[Tensor, Tensor]:
    gram = matrix @ matrix.mT if matrix.shape[0] <= matrix.shape[1] else matrix.mT @ matrix
    squares = torch.linalg.eigvalsh(gram)
    return _from_squares(squares, max(matrix.shape), assembly)


def _by_svd(matrix: Tensor, assembly: float) -> tuple[Tensor, Tensor]:
    if min(matrix.shape) == 0:
        empty = torch.zeros(0, dtype=torch.float64, device="cpu")
        return empty, empty
    values = svdvals(matrix).cpu()
    rounding = C * max(matrix.shape) ** 0.5 * (torch.finfo(torch.float64).eps + _excess(assembly)) * values[0]
    return values, rounding.expand_as(values).clone()


def _by_law(law: Law, sample: int) -> tuple[Tensor, Tensor]:
    """The values of the active rows: 2 r from the reduced eigenproblem, the rest exactly one."""
    U, V = law.factors(sample)  # n, r
    active = law.tail[sample] != 0
    W = torch.cat([U[active], V[active]], 1)  # a, 2 r
    r = U.shape[1]
    M = torch.zeros(2 * r, 2 * r, dtype=torch.float64, device=U.device)
    M[:r, :r] = V.mT @ V
    M[:r, r:] = M[r:, :r] = torch.eye(r, dtype=torch.float64, device=U.device)
    R = torch.linalg.qr(W, mode="r").R  # min(a, 2 r), 2 r
    shifted = R @ M @ R.mT
    squares = 1 + torch.linalg.eigvalsh((shifted + shifted.mT) / 2)
    rest = torch.ones(int(active.sum()) - len(squares), dtype=torch.float64, device=U.device)
    factors = _norm(R) ** 2 * _norm(M)  # what cancels in the product is lost from the values too
    return _from_squares(torch.cat([squares, rest]), max(W.shape), torch.finfo(torch.float64).eps, factors)


def _norm(matrix: Tensor) -> float:
    """The spectral norm, from thirty power iterations, rounded up."""
    vector = torch.ones(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(30):
        vector = matrix.mT @ (matrix @ vector)
        vector = vector / vector.norm().clamp_min(torch.finfo(torch.float64).tiny)
    return 1.2 * float((matrix @ vector).norm())


def _from_squares(squares: Tensor, size: int, assembly: float, factors: float = 0.0) -> tuple[Tensor, Tensor]:
    """factors: the size of what the squares were computed from, where it is larger than the largest square."""
    values = squares.clamp_min(0).sqrt().sort(descending=True).values.cpu()
    if not len(values):
        return values, values
    eps = torch.finfo(torch.float64).eps
    shift = C * size**0.5 * eps * (values[0] ** 2).clamp_min(factors)
    rounding = C * size**0.5 * (eps + _excess(assembly)) * values[0]
    bound = torch.minimum(shift.sqrt(), shift / values.clamp_min(torch.finfo(torch.float64).tiny))
    return values, bound + rounding


def _excess(assembly: float) -> float:
    """What an assembly in lower precision adds to the rounding of float64."""
    return max(0.0, assembly - torch.finfo(torch.float64).eps)


def _acceptable(values: Tensor, bound: Tensor, accuracy: float) -> bool:
    return not len(values) or bool(bound.max() <= accuracy * values[0])


def _law_is_cheaper(law: Law, sample: int) -> bool:
    return bool(law.binary[sample]) and bool(2 * law.rank[sample] < LAW_GAIN * law.active[sample])


def _padded(values: Tensor, size: int) -> Tensor:
    """Zeros for the dropped rows and columns: exact, so their bound is zero too."""
    return torch.cat([values, values.new_zeros(size - len(values))])


def _largest(values: Tensor, bound: Tensor) -> Tensor:
    """The largest bound: that of the smallest value which was computed."""
    return bound.max() if len(bound) else values.new_zeros(())
