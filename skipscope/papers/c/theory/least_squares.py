"""Proposition 3 of Rethinking the role of skip connections: how errors in the inputs move the weights.

W solves Y = W X for inputs X (n, N) of full row rank, N >= n. After a change of the inputs W' = Y (X + dX)^+ solves the
problem again, and if Y = W X held exactly

    W' - W = - W dX (X + dX)^+

since Y (X + dX)^+ = W (X + dX - dX) (X + dX)^+. With spectral norms, kappa = |X| |X^+| and eps = |dX| / |X|

    |W' - W| / |W|  <=  kappa eps / (1 - kappa eps)        for kappa eps < 1

and to first order in eps <= kappa eps, as the paper states. Both are attained. With b the right singular vector of the
smallest singular value of X, u the left one, and a the leading right singular vector of W, dX = d a b^T has |W dX X^+|
= |W| |dX| |X^+|: a first-order ratio of 1. If a = u, dX = -d u b^T has (X + dX)^+ of norm 1 / (sigma_min - d), and the
exact ratio 1 / (1 - kappa eps).

Where the paper prints something else: the proof is in A4, not A3; it uses that norms are sub-multiplicative, not the
inequality of Cauchy and Schwarz; W need not be invertible; kappa = |X| |X^+| is an equality.

It is a statement about least squares without residual. With Y = W X + R, R X^+ = 0, a term is added to the first order:
dW = - W dX X^+ + R dX^T (X X^T)^{-1}, which can be as large as kappa^2 eps |R| / |X|, so that the ratio is up to
1 + kappa |R| / (|W| |X|) (Wedin 1973). Nor does it say anything about the generalisation of trained networks, whose
weights are no such solutions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skipscope.errors import InputError


@dataclass(frozen=True, eq=False)
class PerturbedLeastSquares:
    """W = Y X^+ before and after a change of X."""

    inputs: Tensor  # n, N: X
    targets: Tensor  # m, N: Y
    change: Tensor  # n, N: dX

    @cached_property
    def weights(self) -> Tensor:
        """(m, n): W"""
        return self.targets @ self._inverse

    @cached_property
    def _inverse(self) -> Tensor:
        return torch.linalg.pinv(self.inputs)

    @cached_property
    def residual(self) -> Tensor:
        """(m, N): R = Y - W X."""
        return self.targets - self.weights @ self.inputs

    @property
    def relative_residual(self) -> float:
        """|R| / (|W| |X|): rounding where the targets are W X."""
        return _norm(self.residual) / (_norm(self.weights) * _norm(self.inputs))

    @cached_property
    def condition(self) -> float:
        """kappa(X)"""
        values = torch.linalg.svdvals(self.inputs)
        return float(values[0] / values[-1])

    @property
    def size(self) -> float:
        """eps = |dX| / |X|"""
        return _norm(self.change) / _norm(self.inputs)

    @property
    def first_order(self) -> Tensor:
        """(m, n): dW to first order in the change."""
        inverse = self._inverse
        return -self.weights @ self.change @ inverse + self.residual @ self.change.T @ inverse.T @ inverse

    @property
    def solved_again(self) -> Tensor:
        """(m, n): W' - W, by the changed problem's own solution."""
        inverse = torch.linalg.pinv(self.inputs + self.change)
        return -self.weights @ self.change @ inverse + self.residual @ inverse

    @property
    def first_order_ratio(self) -> float:
        """Left over right side of proposition 3, to first order."""
        return self._ratio(self.first_order)

    @property
    def ratio(self) -> float:
        """Left over right side, with the changed problem solved."""
        return self._ratio(self.solved_again)

    @property
    def largest_ratio(self) -> float:
        """That `ratio` can have at this kappa and eps without a residual; infinite where X + dX may lose its rank."""
        room = 1 - self.condition * self.size
        return 1 / room if room > 0 else math.inf

    def _ratio(self, moved: Tensor) -> float:
        return _norm(moved) / (_norm(self.weights) * self.condition * self.size)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"least squares, inputs {tuple(self.inputs.shape)}: cond {self.condition:.4g}, changed by "
                f"{self.size:.3g} of their norm, residual {self.relative_residual:.2g}",
                f"  |dW| / |W| over cond |dX| / |X|: {self.ratio:.4f}, to first order {self.first_order_ratio:.4f}",
                f"  at most {self.largest_ratio:.4f} without a residual",
            ]
        )


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def proposition3(inputs: Tensor, targets: Tensor, change: Tensor) -> PerturbedLeastSquares:
    """inputs: X (n, N) of full row rank. targets: Y (m, N). change: dX, of the shape of X."""
    X, Y, dX = (torch.as_tensor(given).to(torch.float64) for given in (inputs, targets, change))
    if X.ndim != 2 or Y.ndim != 2 or X.shape != dX.shape or X.shape[1] != Y.shape[1] or X.shape[1] < X.shape[0]:
        raise InputError(
            f"expected inputs (n, N) with N of at least n, targets (m, N) and a change (n, N), "
            f"got {tuple(X.shape)}, {tuple(Y.shape)} and {tuple(dX.shape)}"
        )
    if not all(bool(given.isfinite().all()) for given in (X, Y, dX)):
        raise InputError("expected finite inputs, targets and change, got NaN or infinite entries")
    for what, given in (("inputs", X), ("changed inputs", X + dX)):
        rank = int(torch.linalg.matrix_rank(given))
        if rank < len(X):
            raise InputError(f"expected {what} of full row rank {len(X)}, got rank {rank}")
    if not bool(dX.any()) or not bool((Y @ torch.linalg.pinv(X)).any()):
        raise InputError("expected a change and weights Y X^+ that are not 0")
    return PerturbedLeastSquares(X, Y, dX)


def worst_change(inputs: Tensor, weights: Tensor, size: float) -> Tensor:
    """(n, N): a change of norm `size` |X| whose first-order ratio is 1, and whose ratio is largest where it can be."""
    X, W = (torch.as_tensor(given).to(torch.float64) for given in (inputs, weights))
    if X.ndim != 2 or W.ndim != 2 or W.shape[1] != X.shape[0] or not (size > 0 and math.isfinite(size)):
        raise InputError(
            f"expected inputs (n, N), weights (m, n) and a size above 0, "
            f"got {tuple(X.shape)}, {tuple(W.shape)} and {size}"
        )
    left, values, right = torch.linalg.svd(X, full_matrices=False)
    leading = torch.linalg.svd(W)[2][0]
    towards = -1.0 if float(leading @ left[:, -1]) >= 0 else 1.0  # shrink the smallest singular value, not raise it
    return towards * size * values[0] * torch.outer(leading, right[-1])
