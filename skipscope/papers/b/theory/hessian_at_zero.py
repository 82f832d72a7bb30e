"""Theorem 2 of Demystifying ResNet: the loss of an n-shortcut network around zero weights.

R units with d x d weights, activations only on the branch, and the squared loss:

    h_r = h_{r-1} + post(W^{r,n} mid( ... mid(W^{r,1} pre(h_{r-1}))))      L = 1/(2m) sum |h_R - y|^2

Parameters in the order (r, l, column, row): unit after unit, weight after weight, each as vec(W), column by column.
With e = x - y, p = pre(x), p' = pre'(x) at the data, s the product of the slopes of mid and post at zero, and <.> the
mean over the data:

    M = <e p^T>,   P vec(W) = vec(W^T)
    n >= 3   gradient 0, H = 0; |L(t u) - L(0)| is of order t^n
    n = 2    gradient 0; H = R diagonal blocks [[0, A^T], [A, 0]], A = s (I (x) M) P, so that A vec(V) = vec(s M V^T);
             eigenvalues +-|s| sv(M), each d R times; cond(H) = cond(M) at any R; a strict saddle unless s M = 0
    n = 1    gradient s M for every unit; B on the diagonal, A below it and A^T above:
             B = s^2 <p p^T> (x) I + post''(0) P diag_i(<e_i p p^T>) P
             A = s^2 <p p^T> (x) I + s^2 diag_k(<p'_k e p^T>) P

For n = 1 the paper gives A and B for identity activations, where p' = 1 and post'' = 0; the general form above follows
from the same second derivatives. cond(H) grows with R, since the largest eigenvalue is of order R. The smallest one
depends on M. For identity activations H = 11^T (x) <x x^T> (x) I + F, where F has T = (I (x) M) P below its diagonal
and T^T above. Less what is constant over the units, Fourier modes split F into T + T^T - i cot(a) (T - T^T), up to a
factor, at R angles a. One such matrix is singular if T^{-T} T = M (x) M^{-T} has an eigenvalue other than 1 on the unit
circle; its eigenvalues are the ratios of those of M. So where M has complex eigenvalues, or two that are opposite, the
smallest eigenvalue of H falls like 1/R, with jumps, and cond(H) grows like R^2. In simple cases with real eigenvalues
it grows like R; but where one of them is plus or minus the variance of white inputs it was seen to grow exponentially.
(That is an argument, and what is measured; no proof, for the constant part moves the eigenvalues.)

With a bias after the first weight of each unit (the network of the paper's Equation 3), the bias is a further column of
W^{r,1} and 1 a further entry of p: M becomes [M, <e>], d x (d + 1). For n = 2 the blocks of the weights are as before,
but the eigenvalues are +-|s| sv([M, <e>]), d R times each, and 0, d R times. So cond(H) is infinite, and what remains
without the zeros is cond([M, <e>]), at any R: cond(M) only if the means of x and y agree. The directions of the zeros
are biases together with the weights that make up for them. A bias after a later weight would act as a shorter shortcut.

Where the paper prints something else:
- Equation 9 hides that pre(X) belongs to the superscripts: S^{X pre(X)} - S^{Y pre(X)} is M.
- "As many copies as shortcuts" counts copies of the spectrum of A, in which each value stands d times already.
- P is symmetric and its own inverse, so P and P^T are the same. (With a bias it is neither.)
- Lemma 3 and 4 write a second derivative for one of order N; Lemma 3 uses mid(0) = post(0) = 0.
- The appeal to Toeplitz theory for n = 1 is a heuristic: the blocks do not decay away from the diagonal.
- ReLU meets the assumption only through a smooth stand-in, whose slope is a choice: see `relu_slope`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.b.theory.block_toeplitz import assembled, extreme_magnitudes
from skipscope.papers.b.theory.slopes import Activation, Slope, along, slope_at_zero

DENSE_PARAMETERS = 4096  # up to which the eigenvalues for n = 1 are computed from the assembled matrix


@dataclass(frozen=True)
class HessianErrors:
    """Largest absolute differences between the closed form and what it was compared with."""

    hessian: float
    eigenvalues: float
    gradient: float | None

    def __str__(self) -> str:
        gradient = "" if self.gradient is None else f", gradient {self.gradient:.1e}"
        return f"largest difference: Hessian {self.hessian:.1e}, eigenvalues {self.eigenvalues:.1e}{gradient}"


@dataclass(frozen=True, eq=False)
class HessianAtZero:
    """Gradient and Hessian of the loss of an n-shortcut network at zero weights, in closed form."""

    n: int
    units: int  # R
    M: Tensor  # d, d; with a bias d, d + 1
    A: Tensor  # n = 2: rows W^{r,2}, columns W^{r,1}; n = 1: rows a later unit, columns an earlier one
    B: Tensor  # n = 1: the block of a unit with itself; empty for other n
    slopes: tuple[Slope, ...]  # of mid (n >= 2) and of post

    @property
    def size(self) -> int:
        """d"""
        return len(self.M)

    @property
    def bias(self) -> bool:
        return self.M.shape[1] > self.size

    @property
    def slope(self) -> float:
        """s, the slopes of mid and post at zero multiplied (post's alone for n = 1)."""
        return math.prod(slope.value for slope in self.slopes)

    @property
    def parameters(self) -> int:
        return self.units * (self.M.numel() + (self.n - 1) * self.size**2)

    @property
    def order(self) -> int:
        """All derivatives of the loss up to this order vanish at zero."""
        return self.n - 1

    @property
    def gradient(self) -> Tensor:
        if self.n > 1:
            return self.M.new_zeros(self.parameters)
        return (self.slope * self.M.T.flatten()).repeat(self.units)

    @property
    def matrix(self) -> Tensor:
        """The Hessian, (parameters, parameters)."""
        if self.n == 1:
            return assembled(self.A, self.B, self.units)
        if self.n > 2:
            return self.M.new_zeros(self.parameters, self.parameters)
        later, earlier = self.A.shape
        unit = self.A.new_zeros(later + earlier, later + earlier)
        unit[earlier:, :earlier] = self.A
        unit[:earlier, earlier:] = self.A.T
        return torch.kron(torch.eye(self.units, dtype=unit.dtype, device=unit.device), unit)

    @cached_property
    def levels(self) -> tuple[tuple[float, int], ...]:
        """Eigenvalues, ascending, with their multiplicities: closed form for n >= 2, one by one for n = 1."""
        if self.n == 1:
            return tuple((float(value), 1) for value in self.eigenvalues)
        if self.n > 2:
            return ((0.0, self.parameters),)
        times = self.size * self.units
        magnitudes = [float(value) for value in self._magnitudes]  # descending
        zeros = [(0.0, times)] if self.bias else []
        return (
            *((-value, times) for value in magnitudes),
            *zeros,
            *((value, times) for value in reversed(magnitudes)),
        )

    @cached_property
    def eigenvalues(self) -> Tensor:
        """All of them, ascending, in float64 on the CPU."""
        if self.n == 1:
            return torch.linalg.eigvalsh(self.matrix).cpu()
        values = torch.tensor([value for value, _ in self.levels], dtype=torch.float64, device="cpu")
        return values.repeat_interleave(torch.tensor([times for _, times in self.levels], device="cpu"))

    @property
    def lowest(self) -> float:
        """The lowest eigenvalue: for n = 2 it is -|s| sigma_max(M)."""
        return float(self.eigenvalues[0]) if self.n == 1 else self.levels[0][0]

    @property
    def strict_saddle(self) -> bool:
        """Stationary, with a direction of negative curvature."""
        return self.n == 2 and self.lowest < 0

    @property
    def condition_number(self) -> float:
        """Largest over smallest absolute eigenvalue; infinite if singular, NaN if the Hessian is zero."""
        largest, smallest = self._extremes
        if largest == 0:
            return math.nan
        size = self.parameters if self.n == 1 else max(self.M.shape)  # of the matrix that the eigenvalues are from
        singular = (self.n == 2 and self.bias) or smallest <= size * torch.finfo(self.M.dtype).eps * largest
        return math.inf if singular else largest / smallest

    @property
    def condition_of_M(self) -> float:  # noqa: N802
        """cond(M): for n = 2 that of the Hessian, without the zeros that biases bring."""
        values = torch.linalg.svdvals(self.M)
        return float(values[0] / values[-1])

    def percentile_condition(self, share: float = 0.1) -> float:
        """As the paper measures it: the smallest replaced by a quantile (linearly interpolated) of the magnitudes."""
        magnitudes = self.eigenvalues.abs()
        return float(magnitudes.max() / magnitudes.quantile(share))

    @cached_property
    def _magnitudes(self) -> Tensor:
        return abs(self.slope) * torch.linalg.svdvals(self.M)

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        if self.n > 2:
            return 0.0, 0.0
        if self.n == 2:
            return float(self._magnitudes[0]), float(self._magnitudes[-1])
        if self.parameters > DENSE_PARAMETERS:
            return extreme_magnitudes(self.A, self.B, self.units)
        magnitudes = self.eigenvalues.abs()
        return float(magnitudes.max()), float(magnitudes.min())

    def check(self, hessian: Tensor, gradient: Tensor | None = None) -> HessianErrors:
        """Against a Hessian (and gradient) computed otherwise, with parameters in the same order."""
        if hessian.shape != (self.parameters, self.parameters):
            raise InputError(
                f"expected a Hessian of {self.parameters} x {self.parameters} entries, "
                f"got one of shape {tuple(hessian.shape)}"
            )
        eigenvalues = torch.linalg.eigvalsh(hessian).cpu()
        return HessianErrors(
            float((hessian - self.matrix).abs().max()),
            float((eigenvalues - self.eigenvalues).abs().max()),
            None if gradient is None else float((gradient - self.gradient).abs().max()),
        )

    def __str__(self) -> str:
        biases = ", with biases" if self.bias else ""
        lines = [
            f"{self.n}-shortcut network of {self.units} units, width {self.size}{biases}: "
            f"{self.parameters} parameters, all zero",
            *(f"  {slope}" for slope in self.slopes),
        ]
        if self.n == 1:
            lines.append(f"  gradient of norm {float(self.gradient.norm()):.4g}: not stationary unless M = 0")
        else:
            lines.append(f"  stationary of order {self.order}: derivatives up to that order vanish")
        if self.n > 2 or self._extremes[0] == 0:
            lines.append("  the Hessian is zero")
            return "\n".join(lines)
        if self.n == 2:
            lines.append(f"  eigenvalues, each {self.size * self.units} times: +- {_listed(self._magnitudes)}")
            if self.bias:
                lines.append(f"  and 0, {self.size * self.units} times: one for each bias")
                lines.append(f"  condition number without the zeros {self.condition_of_M:.6g}")
            lines.append(f"  strict saddle: lowest eigenvalue {self.lowest:.4g}")
        lines.append(f"  condition number {self.condition_number:.6g}")
        return "\n".join(lines)


def _listed(values: Tensor, most: int = 6) -> str:
    shown = ", ".join(f"{float(value):.4g}" for value in values[:most])
    return shown if len(values) <= most else f"{shown}, ... {float(values[-1]):.4g}"


def commutation(rows: int, columns: int | None = None) -> Tensor:
    """The permutation P with P vec(W) = vec(W^T) for W of `rows` x `columns` (square by default)."""
    columns = rows if columns is None else columns
    if rows < 1 or columns < 1:
        raise InputError(f"expected a matrix with rows and columns, got {rows} x {columns}")
    places = torch.arange(rows * columns)
    P = torch.zeros(rows * columns, rows * columns, dtype=torch.float64)
    P[(places % rows) * columns + places // rows, places] = 1
    return P


def identity(x: Tensor) -> Tensor:
    return x


def hessian_at_zero(
    X: Tensor,
    Y: Tensor,
    *,
    units: int,
    n: int = 2,
    pre: Activation = identity,
    mid: Activation = identity,
    post: Activation = identity,
    bias: bool = False,
    relu_slope: float | None = None,
) -> HessianAtZero:
    """The Hessian at zero weights for data X and targets Y, both (d, m), one column per sample.

    pre, mid, post: elementwise; mid and post are 0 at 0. mid plays no part for n = 1.
    bias: one after the first weight of each unit, a further column of W^{r,1}: Equation 3 of the paper.
    relu_slope: the slope at zero of a mid or post activation that is not differentiable there. None takes what
    automatic differentiation takes (0 for ReLU, which makes the Hessian zero).
    """
    X, Y = (torch.as_tensor(Z).to(torch.float64) for Z in (X, Y))
    if X.ndim != 2 or X.shape != Y.shape or X.numel() == 0:
        raise InputError(f"expected X and Y of the same shape (d, m), got {tuple(X.shape)} and {tuple(Y.shape)}")
    if not (X.isfinite().all() and Y.isfinite().all()):
        raise InputError("expected finite data, got NaN or infinite entries in X or Y")
    _check_depth(units, n)
    m = X.shape[1]
    outer = slope_at_zero("post", post, relu_slope)
    e, p = X - Y, pre(X.clone())
    if bias:
        p = torch.cat([p, p.new_ones(1, m)])
    M = e @ p.T / m
    if n > 1:
        inner = slope_at_zero("mid", mid, relu_slope)
        return _stationary(M, units, n, inner, outer)
    by_entry = torch.einsum("ku,iu,ju->kij", along(pre, X), e, p) / m  # <p'_k e p^T>
    curved = outer.curvature * torch.einsum("iu,ju,ku->ijk", e, p, p) / m  # <e_i p p^T>
    return _first_order(M, p @ p.T / m, by_entry, curved, units, outer)


def hessian_from_moments(sxx: Tensor, syx: Tensor, *, units: int, n: int = 2) -> HessianAtZero:
    """The linear network's, from the second moments <x x^T> and <y x^T> alone."""
    sxx, syx = (torch.as_tensor(S).to(torch.float64) for S in (sxx, syx))
    if sxx.ndim != 2 or sxx.shape[0] != sxx.shape[1] or sxx.shape != syx.shape:
        raise InputError(f"expected two square matrices of one size, got {tuple(sxx.shape)} and {tuple(syx.shape)}")
    _check_depth(units, n)
    d = len(sxx)
    M = sxx - syx
    linear = slope_at_zero("post", identity, None)
    if n > 1:
        return _stationary(M, units, n, slope_at_zero("mid", identity, None), linear)
    return _first_order(M, sxx, M.expand(d, d, d), M.new_zeros(d, d, d), units, linear)


def _check_depth(units: int, n: int) -> None:
    if units < 1 or n < 1:
        raise InputError(f"expected units >= 1 and n >= 1, got units={units} and n={n}")


def _stationary(M: Tensor, units: int, n: int, mid: Slope, post: Slope) -> HessianAtZero:
    """n >= 2"""
    d, entries = M.shape
    if n == 2:
        eye = torch.eye(d, dtype=M.dtype, device=M.device)
        A = mid.value * post.value * torch.kron(eye, M) @ commutation(d, entries).to(M.device)
    else:
        A = M.new_zeros(d * d, d * entries)
    return HessianAtZero(n, units, M, A, M.new_zeros(0, 0), (mid, post))


def _first_order(M: Tensor, second: Tensor, by_entry: Tensor, curved: Tensor, units: int, post: Slope) -> HessianAtZero:
    """n = 1. second: <p p^T>; by_entry, (d, d, entries): <p'_k e p^T>; curved, (d, entries, entries)."""
    d, entries = M.shape
    common = torch.kron(second, torch.eye(d, dtype=M.dtype, device=M.device))
    later = M.new_zeros(entries, d, entries, d)  # column and row of the later weight, column and row of the earlier one
    own = M.new_zeros(entries, d, entries, d)
    for k in range(d):
        later[k, :, :, k] = by_entry[k]
        own[:, k, :, k] = curved[k]
    A = post.value**2 * (common + later.reshape(common.shape))
    B = post.value**2 * common + own.reshape(common.shape)
    return HessianAtZero(1, units, M, A, B, (post,))
