"""Lemma 1 of Demystifying ResNet: a residual unit that moves one column of a matrix and leaves the others alone.

The columns of A are unit vectors, at least rho/2 apart. To take column a to the unit vector a', with delta = |a' - a|:

    A' = A + W2 relu(W1 A + b),   W1 = sqrt(8 delta)/rho e_1 a^T,   W2 = sqrt(8/delta)/rho (a' - a) e_1^T,
                                  b = sqrt(8 delta)/rho (rho^2/8 - 1) e_1

Another column c has <a, c> = 1 - |a - c|^2/2 <= 1 - rho^2/8, so that the ReLU shuts it off; a itself passes rho^2/8,
which the two factors bring to 1. Both weights have norm sqrt(8 delta)/rho.

The paper's d in the norm is delta, not a dimension. Its b is one number for all coordinates, which works as well: it is
negative, and the other rows of W1 are zero. Only the distances in A are used; those in A' matter to the next unit.
Rounding errors of the unit are those of its input times 8 delta / rho^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError

UNIT_TOLERANCE = 1e-9  # how far the length of a unit vector, or a distance relative to its bound, may be off


@dataclass(frozen=True)
class UnitErrors:
    """Of the moved matrix, largest absolute; of the weights' norms, relative to sqrt(8 delta)/rho."""

    image: float
    norm: float

    def __str__(self) -> str:
        return f"largest error of A' {self.image:.1e}, of the norms {self.norm:.1e}"


@dataclass(frozen=True, eq=False)
class LemmaOne:
    """One unit, and the matrix it was made for."""

    A: Tensor  # d, m
    column: int
    target: Tensor  # d
    rho: float
    W1: Tensor  # d, d
    W2: Tensor  # d, d
    b: Tensor  # d

    @property
    def step(self) -> float:
        """delta"""
        return float((self.target - self.A[:, self.column]).norm())

    @property
    def norm(self) -> float:
        """The norm that both weights have."""
        return math.sqrt(8 * self.step) / self.rho

    def __call__(self, Z: Tensor) -> Tensor:
        """The unit on the columns of Z, (d, anything)."""
        return Z + self.W2 @ torch.relu(self.W1 @ Z + self.b[:, None])

    def check(self) -> UnitErrors:
        """A against the matrix it should become, and the weights' norms against the formula."""
        moved = self.A.clone()
        moved[:, self.column] = self.target
        norms = [abs(float(W.norm()) / self.norm - 1) if self.norm else float(W.norm()) for W in (self.W1, self.W2)]
        return UnitErrors(float((self(self.A) - moved).abs().max()), max(norms))

    def __str__(self) -> str:
        d, m = self.A.shape
        return (
            f"unit that moves column {self.column} of {m} in dimension {d} by {self.step:.4g}; "
            f"rho {self.rho:.4g}, both weights of norm {self.norm:.4g}"
        )


def lemma1(A: Tensor, column: int, target: Tensor, rho: float) -> LemmaOne:
    """The unit that takes a column of A, (d, m), to `target`; columns at least rho/2 from that one stay."""
    A, target = A.to(torch.float64), target.to(torch.float64)
    if A.ndim != 2 or target.shape != A.shape[:1]:
        raise InputError(f"expected A (d, m) and a target (d,), got {tuple(A.shape)} and {tuple(target.shape)}")
    if not 0 <= column < A.shape[1]:
        raise InputError(f"expected a column from 0 to {A.shape[1] - 1}, got {column}")
    expect_unit_columns("A", A)
    expect_unit_columns("target", target[:, None])
    a = A[:, column]
    others = torch.cat([A[:, :column], A[:, column + 1 :]], 1)
    nearest = float((others - a[:, None]).norm(dim=0).amin()) if others.numel() else math.inf
    if not 0 < rho <= 2 * nearest * (1 + UNIT_TOLERANCE):
        raise InputError(
            f"expected rho > 0 and columns at least rho/2 from column {column}, "
            f"got rho={rho} and a distance of {nearest:.6g}"
        )
    delta = float((target - a).norm())
    W1, W2, b = A.new_zeros(len(A), len(A)), A.new_zeros(len(A), len(A)), A.new_zeros(len(A))
    if delta > 0:
        W1[0] = math.sqrt(8 * delta) / rho * a
        W2[:, 0] = math.sqrt(8 / delta) / rho * (target - a)
        b[0] = math.sqrt(8 * delta) / rho * (rho**2 / 8 - 1)
    return LemmaOne(A, column, target, rho, W1, W2, b)


def expect_unit_columns(name: str, A: Tensor) -> None:
    worst = float((A.norm(dim=0) - 1).abs().amax())
    if not worst <= UNIT_TOLERANCE:  # also NaN
        raise InputError(
            f"expected unit vectors as columns of {name}, got lengths up to {worst:.3g} from 1: normalise them"
        )
