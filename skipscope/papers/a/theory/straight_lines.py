"""Theorem 3.1 of Residual Alignment: aligned Jacobians with singular values 1/i put the states on a line, equally
spaced.

A pre-activation network whose units are linear, h_{i+1} = (I + J_i) h_i, with J_i = U diag(S_i) U^T for one U (d, C)
with orthonormal columns (RA2 and RA3). Each component along a column u of U grows on its own, and what is orthogonal to
all of them stays:

    h_k = (I - U U^T) h_1 + U diag(P_k) U^T h_1,     P_k = prod_{i<k} (1 + S_i)

With S_i = 1/i (RA4) the product telescopes to P_k = k, and h_k = h_1 + (k - 1) U U^T h_1: steps of U U^T h_1.

Steps are the same at every k if and only if 1/S_i = i + a in each component that h_1 has, with an a of its own:
S_{k+1} P_{k+1} = S_k P_k says 1/S_{k+1} = 1/S_k + 1. Then P_k = (k + a)/(1 + a). More generally, for 1/S_i = a + b i,

    P_k = G(k + (a + 1)/b) G(1 + a/b) / (G(k + a/b) G(1 + (a + 1)/b))  ~  k^(1/b)       (G: the Gamma function)

so that a straight line through 1/S_i is not enough: its slope has to be 1. With C = 1 states lie on a line whatever S_i
is, and only their distances differ; with several columns they bend unless all grow alike.

Where the paper prints something else:
- h_k = k u u^T h_1 drops the part of h_1 orthogonal to u: I + J_i leaves it alone, U (prod (I + S_i)) U^T would
  annihilate it unless U is square. True only if h_1 is parallel to u; that states lie on a line survives.
- U_{k,1} and U_{i,1} are one vector u, by RA2.
- The proof needs U and V of equal signs, RA4 with slope 1, and units without bias; networks with activations after the
  sum are outside of it. It is for two classes; with C columns it holds as above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skipscope.errors import InputError

ORTHONORMAL = 1e-10  # how far U^T U may be from the identity


@dataclass(frozen=True)
class TrajectoryErrors:
    """Largest absolute differences of the states, unit by unit, from the formulas."""

    corrected: float
    printed: float  # P_k U U^T h_1
    from_line: float  # of the states from the line through the first and the last
    steps: float  # of the steps from the first one

    def __str__(self) -> str:
        return (
            f"largest difference: corrected formula {self.corrected:.1e}, printed one {self.printed:.1e}; "
            f"from a line {self.from_line:.1e}, between steps {self.steps:.1e}"
        )


@dataclass(frozen=True, eq=False)
class AlignedTrajectory:
    """The states of a network of aligned linear units."""

    start: Tensor  # d: h_1
    directions: Tensor  # d, C: U
    singular_values: Tensor  # units, C: S

    def __len__(self) -> int:
        """The number of states, one more than units."""
        return len(self.singular_values) + 1

    @cached_property
    def growth(self) -> Tensor:
        """(states, C): P_k, the products up to each state."""
        ones = self.singular_values.new_ones(1, self.singular_values.shape[1])
        return torch.cat([ones, (1 + self.singular_values).cumprod(0)])

    @cached_property
    def states(self) -> Tensor:
        """(states, d): h_1, h_2, ... by the corrected formula."""
        return self.start - self.directions @ self._components + self.printed

    @cached_property
    def printed(self) -> Tensor:
        """(states, d) by the paper's formula, without what is orthogonal to U."""
        return (self.growth * self._components) @ self.directions.T

    @property
    def _components(self) -> Tensor:
        return self.directions.T @ self.start

    @cached_property
    def recursion(self) -> Tensor:
        """(states, d), one unit after another, with dense Jacobians."""
        states = [self.start]
        for values in self.singular_values:
            J = self.directions @ torch.diag(values) @ self.directions.T
            states.append(states[-1] + J @ states[-1])
        return torch.stack(states)

    @property
    def steps(self) -> Tensor:
        """(units,): lengths."""
        return (self.recursion[1:] - self.recursion[:-1]).norm(dim=1)

    @property
    def step_variation(self) -> float:
        """Standard deviation over mean of the step lengths."""
        return float(self.steps.std(correction=0) / self.steps.mean())

    @property
    def line_shape_score(self) -> float:
        """Length of the line of unit steps over the distance that it covers: 1 if straight."""
        moves = self.recursion[1:] - self.recursion[:-1]
        moves = moves / moves.norm(dim=1, keepdim=True)
        return len(moves) / float(moves.sum(0).norm())

    @property
    def exponent(self) -> float:
        """Slope of log P_k over log k in the last half of the states, for the first direction."""
        k = torch.arange(1, len(self) + 1, dtype=torch.float64, device=self.start.device)
        x, y = k.log()[len(self) // 2 :], self.growth[len(self) // 2 :, 0].log()
        return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())

    def check(self) -> TrajectoryErrors:
        states = self.recursion
        way = states[-1] - states[0]
        away = states - states[0]
        from_line = away - torch.outer(away @ way / (way @ way), way)
        moves = states[1:] - states[:-1]
        return TrajectoryErrors(
            float((states - self.states).abs().max()),
            float((states - self.printed).abs().max()),
            float(from_line.abs().max()),
            float((moves - moves[0]).abs().max()),
        )

    def __str__(self) -> str:
        d, C = self.directions.shape
        errors = self.check()
        return "\n".join(
            [
                f"{len(self)} states in dimension {d}, {C} aligned direction{'s' if C > 1 else ''}",
                f"  line shape score {self.line_shape_score:.6g}, variation of steps {self.step_variation:.4g}",
                f"  growth {float(self.growth[-1, 0]):.6g}, like k^{self.exponent:.4g}",
                f"  {errors}",
            ]
        )


def theorem31(start: Tensor, directions: Tensor, singular_values: Tensor) -> AlignedTrajectory:
    """States from `start` (d) through units with J_i = U diag(S_i) U^T.

    directions: U, (d, C) or (d) for one. singular_values: (units, C), or (units) for all directions alike.
    """
    start = torch.as_tensor(start).to(torch.float64)
    U, S = (torch.as_tensor(given).to(start) for given in (directions, singular_values))
    U = U[:, None] if U.ndim == 1 else U
    if start.ndim != 1 or U.ndim != 2 or len(U) != len(start) or not 1 <= U.shape[1] <= len(U):
        raise InputError(
            f"expected a start of shape (d) and directions (d, C) with C from 1 to d, "
            f"got {tuple(start.shape)} and {tuple(U.shape)}"
        )
    eye = torch.eye(U.shape[1], dtype=U.dtype, device=U.device)
    if not float((U.T @ U - eye).abs().max()) <= ORTHONORMAL:
        raise InputError("expected orthonormal directions, got columns that are not: torch.linalg.qr makes them so")
    S = S[:, None].expand(-1, U.shape[1]) if S.ndim == 1 else S
    if S.ndim != 2 or not len(S) or S.shape[1] != U.shape[1] or not bool((S > 0).all()):
        raise InputError(
            f"expected positive singular values of shape (units, {U.shape[1]}), got shape {tuple(S.shape)}"
            + (f" with a smallest one of {float(S.min()):g}" if S.numel() else "")
        )
    if not bool((U.T @ start).any()):
        raise InputError("expected a start that is not orthogonal to all directions: its states would never move")
    return AlignedTrajectory(start, U, S)


def inverse_affine(units: int, offset: float = 0.0, slope: float = 1.0) -> Tensor:
    """(units,): S_i = 1/(a + b i) for i = 1, 2, ...; RA4 as the theorem has it by default."""
    _expect_affine(units, offset, slope)
    return 1 / (offset + slope * torch.arange(1, units + 1, dtype=torch.float64))


def gamma_growth(units: int, offset: float = 0.0, slope: float = 1.0) -> Tensor:
    """(units + 1,): P_1 = 1, P_2, ... for S_i = 1/(a + b i), from Gamma functions alone."""
    _expect_affine(units, offset, slope)
    k = torch.arange(1, units + 2, dtype=torch.float64)
    above, below = (offset + 1) / slope, offset / slope
    constant = math.lgamma(1 + below) - math.lgamma(1 + above)
    return (torch.lgamma(k + above) - torch.lgamma(k + below) + constant).exp()


def _expect_affine(units: int, offset: float, slope: float) -> None:
    if units < 1 or not slope > 0 or not offset + slope > 0:
        raise InputError(
            f"expected at least one unit, a slope above 0 and offset + slope above 0, "
            f"got units={units}, offset={offset}, slope={slope}"
        )
