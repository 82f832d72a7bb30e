"""The trace inequality of Miranda and Thompson (1993), von Neumann's for more than two real matrices.

A_1, ..., A_m of size n x n with singular values s_1(A_j) >= ... >= s_n(A_j). Over rotations P_j, with determinant 1,

    sup tr(A_1 P_1 ... A_m P_m) = sum_{i<n} prod_j s_i(A_j) + sign det(A_1 ... A_m) prod_j s_n(A_j)

and over all orthogonal P_j the last term has a plus. With A_j = U_j S_j V_j^T it is attained at P_j = V_j U_{j+1}^T
(U_1 after the last), after a reflection of the last column of as many V_j as have V_j U_{j+1}^T with determinant -1:
each of them turns the sign of the last term, and their number is odd if and only if det(A_1 ... A_m) < 0.

Theorem 3.3 uses it with "sign det = 1", which never holds there: one of the matrices is Delta w^T, of rank one. It does
not matter, as the last term is 0 in dimension 2 or more.

`ascend` finds the supremum without the formula. In one P_j alone the trace is tr(P_j M_j), which Procrustes' polar
factor of M_j maximises; one P_j after another it never falls. It can end at a lower stationary value, so there are
several starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.numerics import normal

MOST_SWEEPS = 20_000  # of an ascent
NO_GAIN = 1e-15  # a relative gain of a sweep that counts as none
SWEEPS_WITHOUT_GAIN = 5  # that end an ascent


@dataclass(frozen=True)
class Ascent:
    """The best of several ascents."""

    value: float
    rotations: Tensor  # m, n, n
    values: tuple[float, ...]  # of all starts
    sweeps: int  # of the best
    converged: bool


@dataclass(frozen=True, eq=False)
class TraceInequality:
    matrices: Tensor  # m, n, n
    rotations_only: bool = True  # False: all orthogonal matrices

    @cached_property
    def singular_values(self) -> Tensor:
        """(m, n), descending"""
        return torch.linalg.svdvals(self.matrices)

    @property
    def sign(self) -> int:
        """Of the last term: that of det(A_1 ... A_m), 0 if one is singular; 1 over all orthogonal matrices."""
        if not self.rotations_only:
            return 1
        rounding = self.matrices.shape[1] * torch.finfo(self.matrices.dtype).eps
        singular = self.singular_values[:, -1] <= rounding * self.singular_values[:, 0]
        return 0 if bool(singular.any()) else int(torch.linalg.slogdet(self.matrices).sign.prod())

    @property
    def supremum(self) -> float:
        """By the formula."""
        terms = self.singular_values.prod(0)
        return float(terms[:-1].sum() + self.sign * terms[-1])

    def trace(self, rotations: Tensor) -> Tensor:
        """tr(A_1 P_1 ... A_m P_m) for rotations (..., m, n, n)."""
        factors = (self.matrices @ rotations).unbind(-3)
        return reduce(torch.matmul, factors).diagonal(dim1=-2, dim2=-1).sum(-1)

    @cached_property
    def attained_at(self) -> Tensor:
        """(m, n, n): rotations at which the trace is the supremum."""
        U, _, Vh = torch.linalg.svd(self.matrices)
        left, right = Vh.mT, U.roll(-1, 0).mT
        if self.rotations_only:
            left = left.clone()
            left[:, :, -1] *= torch.linalg.det(left @ right).sign()[:, None]
        return left @ right

    def sampled(self, count: int, seed: int = 0) -> float:
        """The largest trace at random rotations, uniformly distributed."""
        m, n = self.matrices.shape[:2]
        return float(self.trace(self._random((count, m, n), seed)).max())

    def ascend(self, starts: int = 8, seed: int = 0) -> Ascent:
        """Maximise over one rotation after another, from random ones."""
        if starts < 1:
            raise InputError(f"expected at least one start, got {starts}")
        m, n = self.matrices.shape[:2]
        found = [self._ascent(P) for P in self._random((starts, m, n), seed)]
        value, P, sweeps, converged = max(found, key=lambda one: one[0])
        return Ascent(value, P, tuple(one[0] for one in found), sweeps, converged)

    def _ascent(self, P: Tensor) -> tuple[float, Tensor, int, bool]:
        P, value, without_gain = P.clone(), -math.inf, 0
        for sweep in range(1, MOST_SWEEPS + 1):
            for j in range(len(P)):
                P[j] = self._nearest(self._others(P, j))
            now = float(self.trace(P))
            without_gain = without_gain + 1 if now - value <= NO_GAIN * max(1.0, abs(now)) else 0
            value = max(value, now)
            if without_gain == SWEEPS_WITHOUT_GAIN:
                return value, P, sweep, True
        return value, P, MOST_SWEEPS, False

    def _others(self, P: Tensor, j: int) -> Tensor:
        """M with tr(A_1 P_1 ... A_m P_m) = tr(P_j M)."""
        m = len(P)
        product = self.matrices[(j + 1) % m]
        for step in range(1, m):
            product = product @ P[(j + step) % m] @ self.matrices[(j + step + 1) % m]
        return product

    def _nearest(self, M: Tensor) -> Tensor:
        """The P with the largest tr(P M)."""
        U, _, Vh = torch.linalg.svd(M)
        if self.rotations_only and float(torch.linalg.det(Vh.mT @ U.mT)) < 0:
            Vh = torch.cat([Vh[:-1], -Vh[-1:]])
        return Vh.mT @ U.mT

    def _random(self, shape: Sequence[int], seed: int) -> Tensor:
        """(*shape, n), where n is the last of the shape."""
        Q, R = torch.linalg.qr(normal((*shape, shape[-1]), torch.Generator("cpu").manual_seed(seed)))
        Q = Q * R.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
        if self.rotations_only:
            Q[..., -1] *= torch.linalg.det(Q).sign()[..., None]
        return Q.to(self.matrices)

    def __str__(self) -> str:
        m, n = self.matrices.shape[:2]
        terms = ", ".join(f"{float(term):.4g}" for term in self.singular_values.prod(0))
        group = "rotations" if self.rotations_only else "orthogonal matrices"
        return "\n".join(
            [
                f"trace of {m} matrices of {n} x {n} over {group}: at most {self.supremum:.10g}",
                f"  products of singular values {terms}; sign of the last {self.sign:+d}",
                f"  attained to {abs(float(self.trace(self.attained_at)) - self.supremum):.1e}",
            ]
        )


def trace_inequality(matrices: Sequence[Tensor] | Tensor, *, rotations_only: bool = True) -> TraceInequality:
    """The inequality for two square matrices or more, of one size."""
    shapes = [tuple(A.shape) for A in matrices]
    if len(shapes) < 2 or len(set(shapes)) > 1 or len(shapes[0]) != 2 or len(set(shapes[0])) > 1 or not shapes[0][0]:
        raise InputError(f"expected two or more square matrices of one size, got shapes {shapes}")
    stacked = torch.stack([torch.as_tensor(A).to(torch.float64) for A in matrices])
    if not bool(stacked.isfinite().all()):
        raise InputError("expected finite matrices, got NaN or infinite entries")
    return TraceInequality(stacked, rotations_only)
