"""Ranks of products and of gradients: lemmas 2 and 3 and section 4.2 of Rethinking the role of skip connections.

For X (m, n) and V (n, p), Sylvester: rank X + rank V - n <= rank XV <= min(rank X, rank V). So for square matrices a
product is singular if and only if a factor is, and for others neither lemma holds:
- Lemma 2 (V singular => XV singular) takes a u with V u = 0 from dependent rows or columns. Dependent columns give one,
  in R^p and not in R^n; dependent rows do not: [1 0] [1 1]^T = 1.
- Lemma 3 (X, V non-singular => XV non-singular) is false: [1 0] [0 1]^T = 0.

Back-propagation through a linear network h^l = W^l h^{l-1}, or with skips (I + W^l) h^{l-1}, of a batch H (n, N), with
the errors D^l = dE / dH^l:

    D^l = A^{l+1}^T D^{l+1},     dE / dW^l = D^l H^{l-1}^T          A = W, or I + W

Equation 23 has D^l = H^l (W^{l+1} D^{l+1}): the derivative of a linear unit is 1 and not its output, the weight wants
its transpose, and the shapes fit only for N = n. What is left of the argument is a bound,

    rank dE / dW^l <= min(rank D^l, rank H^{l-1})

and no more: both ranks are full with weights that are invertible, at any depth, and those of gradients are at most the
number of outputs for a last layer that has few. Equation 26 (W = dW early in training) is not used: weights differ from
their initial values by their change, they do not equal it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skipscope.errors import InputError


@dataclass(frozen=True)
class RankOfProduct:
    left: int
    right: int
    product: int
    shape: tuple[int, int, int]  # m, n, p

    @property
    def bounds(self) -> tuple[int, int]:
        """Sylvester's."""
        return max(0, self.left + self.right - self.shape[1]), min(self.left, self.right)

    @property
    def full(self) -> tuple[bool, bool, bool]:
        """Whether X, V and XV have the largest rank that their shapes allow."""
        m, n, p = self.shape
        return self.left == min(m, n), self.right == min(n, p), self.product == min(m, p)

    def __str__(self) -> str:
        return f"ranks {self.left} and {self.right}, product {self.product}, within {self.bounds}"


def rank_of_product(left: Tensor, right: Tensor) -> RankOfProduct:
    """Numerical ranks of X (m, n), V (n, p) and XV."""
    X, V = (torch.as_tensor(given).to(torch.float64) for given in (left, right))
    if X.ndim != 2 or V.ndim != 2 or X.shape[1] != V.shape[0] or not X.numel() or not V.numel():
        raise InputError(f"expected matrices (m, n) and (n, p), got {tuple(X.shape)} and {tuple(V.shape)}")
    left_rank, right_rank = (int(torch.linalg.matrix_rank(matrix)) for matrix in (X, V))
    # The product of nearly orthogonal factors is small, and carries the rounding of the factors, not of its own size.
    rounding = max(*X.shape, *V.shape) * torch.finfo(torch.float64).eps
    tolerance = rounding * torch.linalg.matrix_norm(X, 2) * torch.linalg.matrix_norm(V, 2)
    rank = int(torch.linalg.matrix_rank(X @ V, atol=tolerance, rtol=rounding))
    return RankOfProduct(left_rank, right_rank, rank, (X.shape[0], X.shape[1], V.shape[1]))


@dataclass(frozen=True, eq=False)
class LinearGradients:
    """A deep linear network on a batch, with the loss |H^L - Y|^2 / 2, and its gradients."""

    weights: Tensor  # L, n, n
    inputs: Tensor  # n, N: H^0
    targets: Tensor  # n, N: Y
    skips: bool

    @cached_property
    def states(self) -> Tensor:
        """(L + 1, n, N): H^0, H^1, ..."""
        states = [self.inputs]
        for A in self._maps:
            states.append(A @ states[-1])
        return torch.stack(states)

    @cached_property
    def errors(self) -> Tensor:
        """(L, n, N): D^1, D^2, ..., by back-propagation."""
        errors = [self.states[-1] - self.targets]
        for A in self._maps[1:].flip(0):
            errors.append(A.T @ errors[-1])
        return torch.stack(errors[::-1])

    @property
    def gradients(self) -> Tensor:
        """(L, n, n): dE / dW^l."""
        return self.errors @ self.states[:-1].mT

    @property
    def printed_errors(self) -> Tensor:
        """(L - 1, n, N): D^1, ..., each by equation 23 from the true D^2, ...; its shapes fit for N = n alone."""
        n, N = self.inputs.shape
        if n != N:
            raise InputError(f"equation 23 multiplies (n, N) with (n, N): expected N = n = {n}, got N = {N}")
        return self.states[1:-1] @ (self.weights[1:] @ self.errors[1:])

    @property
    def _maps(self) -> Tensor:
        eye = torch.eye(self.weights.shape[1], dtype=self.weights.dtype, device=self.weights.device)
        return self.weights + eye if self.skips else self.weights

    @property
    def differentiated(self) -> Tensor:
        """(L, n, n): the gradients by automatic differentiation."""
        weights = self.weights.detach().clone().requires_grad_()
        with torch.enable_grad():
            state = self.inputs
            for W in weights:
                state = W @ state + (state if self.skips else 0)
            loss = (state - self.targets).square().sum() / 2
        return torch.autograd.grad(loss, weights)[0]

    @property
    def error(self) -> float:
        """Of the gradients against automatic differentiation, relative to the largest entry; the worst layer."""
        expected = self.differentiated
        scale = expected.abs().amax((1, 2))
        return float(((self.gradients - expected).abs().amax((1, 2)) / scale).max())

    @property
    def ranks(self) -> Tensor:
        """(L, 3): numerical ranks of D^l, of H^{l-1} and of dE / dW^l."""
        parts = (self.errors, self.states[:-1], self.gradients)
        return torch.stack([torch.linalg.matrix_rank(part) for part in parts], 1)

    @property
    def bounded(self) -> bool:
        """Whether no gradient has a larger rank than its error or its state."""
        return bool((self.ranks[:, 2] <= self.ranks[:, :2].amin(1)).all())

    def __str__(self) -> str:
        ranks = "; ".join(f"{layer}: {d}, {h}, {g}" for layer, (d, h, g) in enumerate(self.ranks.tolist(), 1))
        return "\n".join(
            [
                f"{len(self.weights)} linear layers{' with skips' * self.skips}, inputs {tuple(self.inputs.shape)}",
                f"  gradients against automatic differentiation: relative difference {self.error:.1e}",
                f"  ranks of error, state before and gradient, by layer: {ranks}",
            ]
        )


def linear_gradients(weights: Tensor, inputs: Tensor, targets: Tensor, *, skips: bool = False) -> LinearGradients:
    """weights: (L, n, n). inputs, targets: (n, N)."""
    W, X, Y = (torch.as_tensor(given).to(torch.float64) for given in (weights, inputs, targets))
    if W.ndim != 3 or not W.numel() or W.shape[1] != W.shape[2] or X.ndim != 2 or len(X) != W.shape[1]:
        raise InputError(
            f"expected weights (L, n, n) and inputs (n, N), got shapes {tuple(W.shape)} and {tuple(X.shape)}"
        )
    if X.shape != Y.shape or not X.numel():
        raise InputError(f"expected targets of the inputs' shape {tuple(X.shape)}, got {tuple(Y.shape)}")
    if not all(bool(given.isfinite().all()) for given in (W, X, Y)):
        raise InputError("expected finite weights, inputs and targets, got NaN or infinite entries")
    return LinearGradients(W, X, Y, skips)
