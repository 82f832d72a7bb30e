"""Theorems 1, 2 and 3 of Rethinking the role of skip connections: products of commuting weights.

All weights are symmetric and have one orthonormal basis v_1, ..., v_n of eigenvectors, with eigenvalues lambda_i^l in
layer l (assumption 1; weights that can be diagonalised together have a common basis, but an orthonormal one only if
they are normal, and a real one only if they are symmetric). An input x = sum alpha_i v_i becomes

    h^L = sum_i alpha_i v_i prod_l f_i^l,     f_i^l = lambda_i^l (PlainNet), 1 + sum_k lambda_i^{l,k} (k: paths)

exactly: equations 12, 18 (ResNet, one path) and 45 (ResNeXt). The map from x to h^L has the condition number
max_i prod |f_i| / min_i prod |f_i|. That is all there is to say about the role of skips: it is near 1 where all
|lambda| are far below 1/L, and never near 1 without skips unless the |lambda_i| are alike. Both maps are invertible
unless some f is 0, so that remarks 1 to 3 ("singular", "non-singular") are statements about the size of a condition
number.

Theorem 1: for L >> 1 the PlainNet's last state is alpha_1 v_1 prod lambda_1, if |lambda_1^l| > |lambda_i^l|.
Theorems 2 and 3 (approximations 16 and 22): the residual network's is x + alpha_1 v_1 (prod f_1 - 1).

Where the paper prints something else, or too little:
- "prod (lambda_i / lambda_1)^l" in 14 has l as the layer's index; as a power it is another number.
- Strict inequality in every layer is not enough: with |lambda_i / lambda_1| = 1 - 1/(l+1)^2 the product is (L + 2) /
  (2 L + 2) and nothing collapses. It takes ratios of at most 1 - eps, and the same index in every layer.
- Approximation 16 leaves out sum_{i>1} alpha_i (prod f_i - 1) v_i, so that its relative error is

      sqrt( sum_{i>1} alpha_i^2 (P_i - 1)^2 / sum_i alpha_i^2 P_i^2 ),     P_i = prod_l f_i^l

  It is small where P_1 dwarfs all others (the residual network itself collapses onto v_1) or where all P_i are near 1
  (it does nothing). |lambda_1| > |lambda_i| orders |lambda|, not |1 + lambda|: with lambda_1 < 0 the direction v_1 is
  the one that is suppressed.
- Theorem 3 needs |sum_k lambda_1^{l,k}| > |sum_k lambda_i^{l,k}|, which |lambda_1^{l,k}| > |lambda_i^{l,k}| in every
  path does not give. Its sums run over j and have the index m or k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skipscope.errors import InputError

ORTHONORMAL = 1e-10  # how far V^T V may be from the identity


@dataclass(frozen=True, eq=False)
class CommutingProduct:
    """A deep linear network of commuting symmetric weights, and what it makes of one input."""

    start: Tensor  # n: x
    basis: Tensor  # n, n: V, its columns the eigenvectors
    eigenvalues: Tensor  # layers, paths, n
    skips: bool

    def __len__(self) -> int:
        return len(self.eigenvalues)

    @property
    def coefficients(self) -> Tensor:
        """(n,): alpha"""
        return self.basis.T @ self.start

    @property
    def sums(self) -> Tensor:
        """(layers, n): the eigenvalues of a layer's weight, or of the sum of its paths."""
        return self.eigenvalues.sum(1)

    @property
    def growth(self) -> Tensor:
        """(n,): P_i, the product over layers."""
        return self._factors.prod(0)

    @property
    def _factors(self) -> Tensor:
        return 1 + self.sums if self.skips else self.sums

    @cached_property
    def last_state(self) -> Tensor:
        """(n,): by the sum over eigenvectors."""
        return self.basis @ (self.coefficients * self.growth)

    @cached_property
    def recursion(self) -> Tensor:
        """(n,): layer by layer, with dense weights, one a path."""
        state = self.start
        for layer in self.eigenvalues:
            branches = [self.basis @ torch.diag(path) @ self.basis.T @ state for path in layer]
            state = torch.stack(branches).sum(0) + (state if self.skips else 0)
        return state

    @property
    def error(self) -> float:
        """Of the sum against the recursion, relative to the length of the state."""
        return float((self.last_state - self.recursion).norm() / self.recursion.norm())

    @property
    def approximation(self) -> Tensor:
        """(n,): the right-hand side of 9, 16 or 22."""
        leading = self.coefficients[0] * self.basis[:, 0]
        return self.start + (self.growth[0] - 1) * leading if self.skips else self.growth[0] * leading

    @property
    def approximation_error(self) -> float:
        """Relative to the length of the last state."""
        return float((self.approximation - self.last_state).norm() / self.last_state.norm())

    @property
    def bounded_error(self) -> float:
        """Relative to the longer of last state and approximation: at most 2, so that means of it mean something."""
        longer = max(float(self.approximation.norm()), float(self.last_state.norm()))
        return float((self.approximation - self.last_state).norm()) / longer

    @property
    def cosine(self) -> float:
        """Of the angle between last state and v_1, without its sign."""
        return abs(float(self.basis[:, 0] @ self.last_state / self.last_state.norm()))

    @property
    def largest_ratio(self) -> float:
        """max |lambda_i / lambda_1| over layers, paths and i > 1; the theorems want it below 1, in every path."""
        return _ratio(self.eigenvalues)

    @property
    def largest_ratio_of_sums(self) -> float:
        """The same of the sums over paths, which theorem 3 needs."""
        return _ratio(self.sums)

    @property
    def log10_condition(self) -> float:
        """Of the map from input to last state; inf where a factor is 0."""
        logarithms = self._factors.abs().log10().sum(0)
        return float(logarithms.max() - logarithms.min())

    def __str__(self) -> str:
        layers, paths, n = self.eigenvalues.shape
        kind = ("PlainNet", "ResNet" if paths == 1 else "ResNeXt")[self.skips]
        return "\n".join(
            [
                f"{kind} of {layers} layers with commuting weights, dimension {n}, {paths} path{'s' * (paths > 1)}",
                f"  sum over eigenvectors: relative error {self.error:.1e}",
                f"  largest |lambda_i / lambda_1| {self.largest_ratio:.4g}, of sums over paths "
                f"{self.largest_ratio_of_sums:.4g}",
                f"  |cos(h^L, v_1)| {self.cosine:.6f}, log10 cond {self.log10_condition:.3g}",
                f"  approximation: relative error {self.approximation_error:.3g}",
            ]
        )


def _ratio(eigenvalues: Tensor) -> float:
    return float((eigenvalues[..., 1:] / eigenvalues[..., :1]).abs().max())


def commuting_product(start: Tensor, basis: Tensor, eigenvalues: Tensor, *, skips: bool = False) -> CommutingProduct:
    """The network of theorem 1, or with skips of theorem 2, or 3 where there are several paths.

    start: x (n). basis: V (n, n), orthonormal, v_1 first. eigenvalues: (layers, n), or (layers, paths, n).
    """
    start = torch.as_tensor(start).to(torch.float64)
    V, values = (torch.as_tensor(given).to(start) for given in (basis, eigenvalues))
    n = start.shape[0] if start.ndim == 1 else 0
    if n < 2 or V.shape != (n, n):
        raise InputError(
            f"expected a start of shape (n) with n of 2 or more and a basis (n, n), "
            f"got {tuple(start.shape)} and {tuple(V.shape)}"
        )
    if not float((V.T @ V - torch.eye(n, dtype=V.dtype, device=V.device)).abs().max()) <= ORTHONORMAL:
        raise InputError("expected an orthonormal basis, got columns that are not: torch.linalg.qr makes them so")
    values = values[:, None] if values.ndim == 2 else values
    if values.ndim != 3 or not values.numel() or values.shape[2] != n or not bool(values.isfinite().all()):
        raise InputError(
            f"expected finite eigenvalues of shape (layers, {n}) or (layers, paths, {n}), got {tuple(values.shape)}"
        )
    if not bool(start.isfinite().all()) or not float(V[:, 0] @ start):
        raise InputError("expected a finite start that is not orthogonal to v_1")
    return CommutingProduct(start, V, values, skips)
