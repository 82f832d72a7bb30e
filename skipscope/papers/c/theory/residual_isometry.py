"""The spectrum of a residual network at initialisation: with branches of variance c / L it depends on c alone.

(Tarnowski et al., 2018, "Dynamical isometry is achieved in residual networks in a universal way".) Of L wide units
h + F_l(h), each with a Jacobian of independent entries of mean 0 and variance c / (L n), J = prod_l (I + J_l). In the
limit of n, then L, J J^T has the S-transform S(z) = exp(-c (1 + 2 z)), whatever the branches are: it is the product of
L free factors (I + J_l)(I + J_l)^T, each of mean 1 + c / L and relative variance 2 c / L in first order.

moments     With psi the inverse of z S(z) / (1 + z), Lagrange's formula gives the mean of the k-th power of J J^T:

                m_k = (1/k) [z^(k-1)] ((1 + z) exp(c (1 + 2 z)))^k
                    = (1/k) exp(c k) sum_(j<k) binomial(k, j) (2 c k)^(k-1-j) / (k-1-j)!

            m_1 = exp(c), m_2 = exp(2 c) (1 + 2 c)
edges       d/dz of z S(z) / (1 + z) vanishes at 1 + 2 z = +- r, r = sqrt(1 + 2/c): the largest eigenvalue of J J^T is
            exp(c r) (r + 1) / (r - 1), the smallest its inverse
density     1 + 2 z = p + i q makes z S(z) / (1 + z) real where p^2 = 1 - q^2 + 2 q cot(c q). There the logarithm of
            the singular value is s = (c p + log |p + 1 + i q| - log |p - 1 + i q|) / 2 and its density q / pi, which is
            even in s: a singular value is as frequent as its inverse, and half of them are above 1

c is n L times the variance of an entry of a branch's Jacobian: of a branch W phi(h), the variance of W's outputs per
unit of input times the mean of phi'^2 (1/2 for ReLU), summed over the units. The units' Jacobians have to be
independent. Those of W relu(h) are not quite: the skip carries the state on, so that much the same entries are active
in all units. The mean stays exp(c); the spectrum is wider than this one, by about a tenth at c = 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError


@dataclass(frozen=True)
class ResidualIsometry:
    """Singular values of the end-to-end Jacobian in the limit of many wide units."""

    variance: float  # c

    def moment(self, order: int) -> float:
        """The mean of (J J^T)^order."""
        if isinstance(order, bool) or not isinstance(order, int) or order < 1:
            raise InputError(f"order={order!r}: expected a whole number from 1 on")
        scale = 2 * self.variance * order
        terms = (math.comb(order, j) * scale ** (order - 1 - j) / math.factorial(order - 1 - j) for j in range(order))
        return math.exp(self.variance * order) / order * math.fsum(terms)

    @property
    def largest(self) -> float:
        """The largest singular value; the smallest is its inverse."""
        root = math.sqrt(1 + 2 / self.variance)
        # (r + 1) / (r - 1) without the difference of two numbers close to 1
        return math.exp(self.variance * root / 2) * (root + 1) * math.sqrt(self.variance / 2)

    @property
    def smallest(self) -> float:
        return 1 / self.largest

    @property
    def condition_number(self) -> float:
        return self.largest**2

    def log_density(self, points: int = 1001) -> tuple[Tensor, Tensor]:
        """Logarithms of singular values in ascending order, and their density there: (2 points - 1), twice."""
        if points < 2:
            raise InputError(f"points={points}: expected at least 2 on either side of 1")
        angle = torch.linspace(0, math.pi / 2, points, dtype=torch.float64, device="cpu")
        q = self._middle() * angle.sin()  # dense where the curve turns
        cotangent = torch.where(q > 0, q / torch.tan(self.variance * q), 1 / self.variance)
        p = (1 - q.square() + 2 * cotangent).clamp_min(0).sqrt()
        p[-1] = 0
        above = (self.variance * p + torch.log(torch.hypot(p + 1, q) / torch.hypot(p - 1, q))) / 2
        return torch.cat([-above, above.flip(0)[1:]]), torch.cat([q, q.flip(0)[1:]]) / math.pi

    def _middle(self) -> float:
        """q at p = 0, by bisection: 1 - q^2 + 2 q cot(c q) falls from 1 + 2/c to minus infinity at c q = pi."""
        low, high = 0.0, math.pi / self.variance
        while (middle := (low + high) / 2) not in (low, high):
            falls = 1 - middle**2 + 2 * middle / math.tan(self.variance * middle) > 0
            low, high = (middle, high) if falls else (low, middle)
        return low

    def __str__(self) -> str:
        return (
            f"branches of variance {self.variance:g} in all: singular values from {self.smallest:.4g} to "
            f"{self.largest:.4g}, mean square {self.moment(1):.4g}, mean fourth power {self.moment(2):.4g}"
        )


def residual_isometry(variance: float) -> ResidualIsometry:
    """variance: c, that of the branches of all units together."""
    if not 0 < variance < math.inf:
        raise InputError(f"variance={variance!r}: expected a finite number above 0")
    return ResidualIsometry(float(variance))
