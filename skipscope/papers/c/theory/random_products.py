"""Proposition 1 of Rethinking the role of skip connections, and the condition of deep products of random matrices.

Proposition 1: a matrix of continuous random entries is singular with probability 0. Its entries as floating-point
numbers are rational, so that `singular` can decide it without rounding: by elimination modulo a prime, where a
determinant that is not 0 modulo the prime is not 0, and by rational arithmetic in the rare other cases. With discrete
entries it is false: of 2 x 2 matrices of signs half are singular.

Products. A product of invertible matrices is invertible, at any depth and with or without skips; what grows is the
condition number. It is not to be read from a product that float64 has computed: beyond 1/eps the small singular values
are rounding, and the number stays near 1e17 to 1e20 whatever the depth. `MatrixProduct` has the true one:

    log cond(A_L ... A_1) = log |A_L ... A_1| + log |A_1^{-1} ... A_L^{-1}|

with spectral norms. The norm of a product is well determined by its rounded factors, and is taken after every factor,
with the product scaled back to norm 1, so that nothing under- or overflows. Cost: 2 L products and SVDs.

With square factors of independent normal entries of variance v the exponents (growth of log singular values a factor)
are 1/2 (log 2 v + digamma((n - i + 1) / 2)) (Newman, Commun. Math. Phys. 103, 1986). Of I + B, with small isotropic B
whose entries have variance v, they are v (n - 2 i) / 2 in the limit (Brownian motion on matrices), so that

    log cond ~ v (n - 1) L

grows linearly with depth however small v is: skips help only with branches that shrink like 1 / sqrt(L). For
B = s W_2 W_1 at He's variance 2/n, v = 4 s^2 / n. With c = v n L far below 1 the product is I plus the sum of all B, of
whose symmetric part the eigenvalues fill a semicircle, so that log cond is near 2 sqrt(2 c). With c fixed the squared
singular values settle as L and n grow, with the moments e^c and e^{2c} (1 + 2 c) (Tarnowski et al., 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.spectrum.condition import Condition, condition_number

PRIME = 2**31 - 1  # products of two residues fit into 63 bits
DIGITS = 53  # of a float64

Entries = Literal["normal", "uniform", "signs"]
ENTRIES: tuple[Entries, ...] = ("normal", "uniform", "signs")


# -- proposition 1


def random_matrices(entries: Entries, draws: int, size: int, generator: torch.Generator) -> Tensor:
    """(draws, n, n) on the CPU: independent entries of variance 1, 1/3 (from -1 to 1) or 1 (-1 and 1)."""
    if entries not in ENTRIES:
        raise InputError(f"entries: expected one of {', '.join(ENTRIES)}, got {entries!r}")
    if min(draws, size) < 1:
        raise InputError(f"expected a draw and a size of at least 1, got {draws} and {size}")
    shape, options = (draws, size, size), {"dtype": torch.float64, "generator": generator, "device": "cpu"}
    if entries == "normal":
        return torch.randn(shape, **options)  # type: ignore[call-overload]
    uniform: Tensor = 2 * torch.rand(shape, **options) - 1  # type: ignore[call-overload]
    return uniform if entries == "uniform" else torch.where(uniform < 0, -1.0, 1.0).to(uniform)


def singular(matrices: Tensor) -> Tensor:
    """(draws,): whether each matrix of (draws, n, n) has the determinant 0, exactly."""
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2] or not matrices.numel():
        raise InputError(f"expected square matrices of shape (draws, n, n), got {tuple(matrices.shape)}")
    values = matrices.detach().cpu().to(torch.float64).numpy()
    if not numpy.isfinite(values).all():
        raise InputError("expected finite matrices, got NaN or infinite entries")
    unsure = _vanishes_modulo_prime(_residues(values))
    found = [bool(maybe) and _rational_rank(matrix) < len(matrix) for maybe, matrix in zip(unsure, values, strict=True)]
    return torch.tensor(found, device=matrices.device)


def _residues(values: numpy.ndarray) -> numpy.ndarray:
    """The entries modulo the prime: a whole number times a power of 2, which has an inverse."""
    mantissas, exponents = numpy.frexp(values)
    powers, places = numpy.unique(exponents, return_inverse=True)
    factors = numpy.array([pow(2, int(power) - DIGITS, PRIME) for power in powers], dtype=numpy.int64)
    whole = numpy.ldexp(mantissas, DIGITS).astype(numpy.int64) % PRIME
    return numpy.asarray(whole * factors[places.reshape(values.shape)] % PRIME)


def _vanishes_modulo_prime(rest: numpy.ndarray) -> numpy.ndarray:
    """(draws,): whether the determinant is 0 modulo the prime, by elimination without divisions of what is left."""
    rest, zero = rest.copy(), numpy.zeros(len(rest), dtype=bool)
    draws = numpy.arange(len(rest))
    for column in range(rest.shape[1]):
        pivots = column + (rest[:, column:, column] != 0).argmax(1)
        rest[draws, pivots], rest[:, column] = rest[:, column].copy(), rest[draws, pivots].copy()
        zero |= rest[:, column, column] == 0
        lower, pivot = rest[:, column + 1 :, column, None], rest[:, column, column, None, None]
        rest[:, column + 1 :] = (rest[:, column + 1 :] * pivot % PRIME - lower * rest[:, column, None] % PRIME) % PRIME
    return zero


def _rational_rank(matrix: numpy.ndarray) -> int:
    rows = [[Fraction(float(value)) for value in row] for row in matrix]
    rank = 0
    for column in range(len(rows)):
        pivot = next((place for place in range(rank, len(rows)) if rows[place][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for place in range(rank + 1, len(rows)):
            ratio = rows[place][column] / rows[rank][column]
            rows[place] = [a - ratio * b for a, b in zip(rows[place], rows[rank], strict=True)]
        rank += 1
    return rank


# -- products


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """A_L ... A_1 for every depth from 1 to L."""

    factors: Tensor  # L, n, n; the first is applied first

    def __len__(self) -> int:
        return len(self.factors)

    @cached_property
    def log10_largest(self) -> Tensor:
        """(L,): of the largest singular value of the first 1, 2, ... factors' product."""
        return self._norms(self.factors, from_left=True)

    @cached_property
    def log10_smallest(self) -> Tensor:
        """(L,): of the smallest singular value, by the inverse of the product."""
        return -self._norms(torch.linalg.inv(self.factors), from_left=False)

    @property
    def log10_condition(self) -> Tensor:
        """(L,): also beyond what float64 can hold."""
        return self.log10_largest - self.log10_smallest

    def in_float64(self, depth: int | None = None) -> Condition:
        """Of the product of the first factors, all by default, as float64 computes it: right below about 1e12."""
        product = self.factors[0]
        for factor in self.factors[1 : self._checked(depth)]:
            product = factor @ product
            product = product / product.norm()
        return condition_number(product)

    def squared_singular_values(self, depth: int | None = None) -> Tensor:
        """(n,), of the product of the first factors as float64 computes it."""
        product = self.factors[0]
        for factor in self.factors[1 : self._checked(depth)]:
            product = factor @ product
        return torch.linalg.svdvals(product).square()

    @cached_property
    def exponents(self) -> Tensor:
        """(n,): growth of the logarithms a factor, descending in the limit of many, by QR decompositions."""
        frame = torch.eye(self.factors.shape[1], dtype=self.factors.dtype, device=self.factors.device)
        total = torch.zeros_like(frame[0])
        for factor in self.factors:
            frame, R = torch.linalg.qr(factor @ frame)
            total += R.diagonal().abs().log()
        return total / len(self)

    @property
    def numerical_infinity(self) -> float:
        """log10 of 1 / (eps n)."""
        return -math.log10(torch.finfo(torch.float64).eps * self.factors.shape[1])

    def _checked(self, depth: int | None) -> int:
        if depth is not None and not 1 <= depth <= len(self):
            raise InputError(f"depth: expected from 1 to {len(self)}, got {depth}")
        return len(self) if depth is None else depth

    def _norms(self, factors: Tensor, *, from_left: bool) -> Tensor:
        """(L,): log10 of the spectral norms of the products, scaled back at every step."""
        product = torch.eye(factors.shape[1], dtype=factors.dtype, device=factors.device)
        total, found = 0.0, []
        for factor in factors:
            product = factor @ product if from_left else product @ factor
            norm = torch.linalg.matrix_norm(product, 2)
            total += math.log10(float(norm))
            product = product / norm
            found.append(total)
        return torch.tensor(found, dtype=factors.dtype, device=factors.device)

    def __str__(self) -> str:
        there = self.in_float64()
        return "\n".join(
            [
                f"product of {len(self)} matrices of {self.factors.shape[1]} x {self.factors.shape[1]}",
                f"  log10 cond {float(self.log10_condition[-1]):.4g}; float64 computes {math.log10(there.value):.4g} "
                f"({there.status})",
                f"  exponents from {float(self.exponents.max()):.4g} to {float(self.exponents.min()):.4g} a factor",
            ]
        )


def matrix_product(factors: Tensor) -> MatrixProduct:
    """factors: (L, n, n), invertible, the first applied first."""
    factors = torch.as_tensor(factors).to(torch.float64)
    if factors.ndim != 3 or factors.shape[1] != factors.shape[2] or not factors.numel():
        raise InputError(f"expected square matrices of shape (L, n, n), got {tuple(factors.shape)}")
    if not bool(factors.isfinite().all()):
        raise InputError("expected finite matrices, got NaN or infinite entries")
    values = torch.linalg.svdvals(factors)
    worst = float((values[:, 0] / values[:, -1]).max())
    if not worst < 1 / (torch.finfo(torch.float64).eps * factors.shape[1]):
        raise InputError(f"expected factors that float64 can invert, got one with a condition number of {worst:.1e}")
    return MatrixProduct(factors)


def random_product(
    size: int, units: int, *, seed: int | torch.Generator, skips: bool = True, scale: float = 1.0, weights: int = 2
) -> MatrixProduct:
    """Units I + s W_2 W_1, or without skips s W_2 W_1, of independent normal weights with He's variance 2 / n.

    weights: how many a unit.
    """
    if min(size, units, weights) < 1 or not (scale > 0 and math.isfinite(scale)):
        raise InputError(
            f"expected size, units and weights of at least 1 and a scale above 0, "
            f"got {size}, {units}, {weights} and {scale}"
        )
    generator = torch.Generator("cpu").manual_seed(seed) if isinstance(seed, int) else seed
    drawn = random_matrices("normal", units * weights, size, generator).reshape(units, weights, size, size)
    drawn = drawn * math.sqrt(2 / size)
    branch = drawn[:, 0]
    for place in range(1, weights):
        branch = drawn[:, place] @ branch
    eye = torch.eye(size, dtype=torch.float64, device="cpu")
    return matrix_product(scale * branch + eye if skips else scale * branch)


def gaussian_exponents(size: int, variance: float) -> Tensor:
    """(n,): of products of matrices with independent normal entries (Newman)."""
    _expect(size, variance)
    i = torch.arange(1, size + 1, dtype=torch.float64)
    return (math.log(2 * variance) + torch.digamma((size - i + 1) / 2)) / 2


def small_branch_exponents(size: int, variance: float) -> Tensor:
    """(n,): of products of I + B, where entries of B have this variance, to first order in it."""
    _expect(size, variance)
    i = torch.arange(1, size + 1, dtype=torch.float64)
    return variance * (size - 2 * i) / 2


def _expect(size: int, variance: float) -> None:
    if size < 1 or not (variance > 0 and math.isfinite(variance)):
        raise InputError(f"expected a size of at least 1 and a variance above 0, got {size} and {variance}")
