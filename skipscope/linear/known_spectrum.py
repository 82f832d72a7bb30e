"""What is known of an operator's singular values before any is computed.

An operator says it (`Operator.known_spectrum`), a solver asks; neither needs to know where the knowledge comes from.
It has one form so far, that of a residual unit with an identity skip (`law`): every sample's matrix is

    A = D (I + U V^T),    D a diagonal, U and V of r columns,

so that almost all singular values are 0 or 1 where D is of zeros and ones and r is small. An eigenproblem of size 2 r
gives the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from skipscope.numerics import normal, random_numbers

if TYPE_CHECKING:
    from skipscope.linear.operator import Operator

PROBES = 4  # random vectors for an estimate


@dataclass(frozen=True)
class KnownSpectrum:
    """Of every sample's matrix A = D (I + U V^T), n x n."""

    zeros_at_least: Tensor  # (B,) singular values that are 0
    ones_at_least: Tensor  # (B,) singular values that are 1
    diagonal: Tensor  # (B, n): D
    rank: Tensor  # (B,): r
    factors: Callable[[int], tuple[Tensor, Tensor]]  # U and V (n, r) of one sample in float64; they cost 2 r products

    @property
    def active(self) -> Tensor:
        """(B, n) rows that are not zero."""
        return self.diagonal != 0

    @property
    def binary(self) -> Tensor:
        """(B,) is D of zeros and ones only?"""
        return ((self.diagonal == 0) | (self.diagonal == 1)).all(1)

    def error(self, A: Operator, sample: int, U: Tensor, V: Tensor) -> float:
        """An estimate of |A - D (I + U V^T)|_F: what the factors of a sample leave out.

        A: the operator of that sample alone, by its own products, which know nothing of factors. For Gaussian z the
        mean of |(A - D (I + U V^T)) z|^2 is the square of it.
        """
        z = normal((len(V), PROBES), random_numbers("probes", sample), device=A.device)
        expected = self.diagonal[sample, :, None] * (z + U @ (V.mT @ z))
        error = float((A.matmat(z[None])[0] - expected).square().sum(0).mean().sqrt())
        return math.inf if math.isnan(error) else error  # factors whose product is no number say nothing
