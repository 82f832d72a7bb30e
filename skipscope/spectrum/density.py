"""Spectral densities by stochastic Lanczos quadrature.

Golub and Meurant, Matrices, Moments and Quadrature (1994); Ubaru, Chen and Saad, SIAM J. Matrix Anal. Appl. 38 (2017).
A probe v of random signs and length 1 has the spectral measure mu_v = sum_i (v_i^T v)^2 delta(sigma_i), whose mean over
probes is the density (1/n) sum_i delta(sigma_i). k steps of Golub-Kahan bidiagonalisation from v,

    A V = U B,   A^T U = V B^T + beta v_{k+1} e_k^T,   B upper bidiagonal,

give the k-point Gauss rule of mu_v in the variable sigma^2: the nodes are the singular values of B, not the roots of
eigenvalues of A^T A, the weights the squared first entries of its right singular vectors. A symmetric operator takes
Lanczos, A V = V T + ..., and eigenvalues in place of singular values. Few distinct values end the recurrence early; the
rule of that probe is then exact.

Convention: an m x n matrix has min(m, n) singular values. Probes live on the shorter side, so that the |m - n| zeros
which only the longer side sees are not counted.

Cost: 2 k - 1 products per probe (k for a symmetric operator), all samples and probes in one block; full
reorthogonalisation keeps (m + n) k numbers per probe and sample (n k for a symmetric one) and takes 8 (m + n) k^2
operations. When an accelerator has no memory for that, the probes run in two halves.

Errors: the variance over probes as a standard error, and the bias of the quadrature, from a comparison with the rule
after half of the steps. Values that lie closer together than k steps resolve, about pi/2 of the spectrum's range over
k, look like a single one, in the bias too. Every sample gets the same probes, so that its numbers do not depend on its
batch.

Scale: the recurrence runs in a unit of each sample's own (`scale`). An operator of which underflow hides more than 1e-3
of its size is refused, and so are numbers that float64 cannot hold, such as the fourth moment at 1e-90.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator, asked_once
from skipscope.numerics import measuring
from skipscope.spectrum.quadrature import (
    FAR_OUTSIDE,
    Rule,
    christoffel,
    gauss_rule,
    random_signs,
    recurrence_of,
    relative_rounding,
)
from skipscope.spectrum.scale import MARGIN, InUnit, exponents, scaled, upper

SQRT_TWO_PI = math.sqrt(2 * math.pi)
GRID_POINTS = 256  # points of the smoothed density
HIDDEN_ALLOWED = 1e-3  # of the largest value: more than this lost to underflow is refused


@dataclass(frozen=True)
class Estimate:
    """A mean over probes, one per sample."""

    value: Tensor  # B
    standard_error: Tensor  # B: over probes
    bias: Tensor  # B: of the quadrature; 0 where every probe's recurrence ended by itself


@dataclass(frozen=True)
class Density:
    """The density of singular values (of eigenvalues where `symmetric`), integrating to 1; float64, on the CPU."""

    values: Tensor  # points: the grid
    density: Tensor  # B, points: smoothed with a Gaussian of standard deviation `width`
    standard_error: Tensor  # B, points
    bias: Tensor  # B, points: |density - density after half of the steps|
    width: float
    rule: Rule
    half: Rule  # the same probes after half of the steps
    exact: Tensor  # B, probes: the recurrence ended by itself or spans the whole space
    rounding: Tensor  # B: values closer than this cannot be distinguished
    shape: tuple[int, int, int]
    symmetric: bool
    probes: int
    steps: int
    products: int  # vectors that were multiplied by A or A^T, per sample; finding the unit takes 4 to 12 more
    dtype: torch.dtype  # of the products
    seed: int

    @property
    def nodes(self) -> Tensor:  # B, probes, steps
        return self.rule.nodes

    @property
    def weights(self) -> Tensor:  # B, probes, steps
        return self.rule.weights

    def count(self, low: float, high: float) -> Estimate:
        """The share of the spectrum in [low, high], the ends widened by `rounding`: the sum of the weights inside.

        By the Chebyshev-Markov-Stieltjes inequalities a probe's own share lies between that sum with the two nodes just
        outside the interval and that sum without the two just inside. The part of their weights that is an atom stays
        where it is; the rest, by the rule after half of the steps, is the bias: an estimated bound, often 3 times the
        error.
        """
        if not low <= high:
            raise InputError(f"count: expected low <= high, got {low} and {high}")
        lower, upper = low - self.rounding[:, None, None], high + self.rounding[:, None, None]
        first = (self.nodes < lower).sum(-1)  # B, probes: the first node inside
        last = (self.nodes <= upper).sum(-1) - 1
        missing = self._loose(first - 1, first > 0) + self._loose(last + 1, last + 1 < self.steps)
        too_much = self._loose(first, first <= last) + self._loose(last, first < last)
        return self._estimate(self._between(self.rule, lower, upper), torch.maximum(missing, too_much))

    def mass_at(self, value: float, tolerance: float | None = None) -> Estimate:
        """The share of the spectrum within `tolerance` of a value; without one, at the value itself.

        Without a tolerance: no probe has more mass at x than the Christoffel function 1 / sum_{j<k} p_j(x)^2 of its k
        orthonormal polynomials, which falls to that mass, as 1/k where other values lie all around x and geometrically
        where they keep away. Two times its value after k steps less its value after k/2 takes out the 1/k; the change
        between them is the bias. So an atom is distinguished from a dense neighbourhood without choosing a tolerance.
        """
        if tolerance is not None:
            if not tolerance >= 0:
                raise InputError(f"mass_at: expected a tolerance of 0 or more, got {tolerance}")
            return self.count(value - tolerance, value + tolerance)
        if value < 0 and not self.symmetric:
            raise InputError(f"mass_at: singular values are never negative, got {value}")
        lower, upper = value - self.rounding[:, None, None], value + self.rounding[:, None, None]
        point = torch.full_like(self.rule.diagonal[..., 0], value)  # B, probes
        near = self._between(self.rule, lower, upper)
        full = torch.maximum(near, self._christoffel(self.rule, point))
        half = torch.maximum(self._between(self.half, lower, upper), self._christoffel(self.half, point))
        limit = torch.minimum((2 * full - half).clamp(min=0), full)
        return self._estimate(torch.where(self.exact, near, limit), half - full)

    def moment(self, order: int) -> Estimate:
        """The mean of sigma^order (of lambda^order). A probe's own is exact for even orders up to 4 steps - 2 (for all
        orders up to 2 steps - 1 of a symmetric operator), and then only the standard error counts."""
        if order < 1:
            raise InputError(f"moment: expected an order of 1 or more, got {order}")
        # In the unit: squares of 1e-200 are zero, and so would be their errors.
        exponent = self.rule.exponent
        full, half = (
            (rule.weights * scaled(rule.nodes, -exponent) ** order).sum(-1) for rule in (self.rule, self.half)
        )
        found = self._estimate(full, full - half)
        value = torch.where(found.value == 0, 0.0, scaled(found.value, order * exponent))
        kept = value.isfinite() & ((value == 0) == (found.value == 0))
        if not (kept & ((value == 0) | (value.abs() >= torch.finfo(torch.float64).smallest_normal))).all():
            raise InputError(
                f"moment: that of order {order} is beyond the range of float64 (values near "
                f"{float(self.nodes.abs().max()):.0e}); take it of a multiple of the operator"
            )
        error, bias = (upper(part, order * exponent) for part in (found.standard_error, found.bias))
        return Estimate(value, error, bias)

    def _between(self, rule: Rule, lower: Tensor, upper: Tensor) -> Tensor:  # B, probes
        return (rule.weights * ((rule.nodes >= lower) & (rule.nodes <= upper))).sum(-1)

    def _christoffel(self, rule: Rule, value: Tensor) -> Tensor:  # B, probes
        value = scaled(value, -rule.exponent).clamp(-FAR_OUTSIDE, FAR_OUTSIDE)
        return christoffel(rule, value if self.symmetric else value * value)

    def _loose(self, index: Tensor, there: Tensor) -> Tensor:
        """How much of a node's weight is not an atom at the node; B, probes.

        The weight is the Christoffel function at the node. With half of the steps it is twice as large among values
        that lie densely, and no larger at an atom.
        """
        index = index.clamp(0, self.steps - 1)[..., None]
        node, weight = self.nodes.gather(-1, index)[..., 0], self.weights.gather(-1, index)[..., 0]
        growth = self._christoffel(self.half, node) - weight
        return torch.where(there, torch.minimum(growth.clamp(min=0), weight), 0)

    def _estimate(self, numbers: Tensor, bias: Tensor) -> Estimate:
        """From each probe's number and its bias, (B, probes) each."""
        value, error = _over_probes(numbers)
        return Estimate(value, error, torch.where(self.exact, 0, bias).mean(1).abs())


@asked_once()
@measuring()  # a user's autocast or TF32 would be in the bases too
def spectral_density(
    A: Operator,
    *,
    symmetric: bool = False,
    probes: int = 8,
    steps: int = 64,
    seed: int = 0,
    points: int | Tensor | None = None,
    width: float | None = None,
) -> Density:
    """The density of the singular values of A, or of the eigenvalues of a symmetric A, with its errors.

    `points` is the number of points of the grid (256), which then covers the spectrum and 4 widths on each side, or the
    grid itself. `width` is the standard deviation of the Gaussian that smooths, by default the range of the nodes
    divided by the steps: the finest that does not show the single nodes.
    """
    batch, m, n = A.shape
    if min(batch, m, n) < 1:
        raise InputError(f"spectral_density: {A.name} of shape {A.shape} has no entries")
    if symmetric and m != n:
        raise InputError(f"spectral_density: symmetric=True, but {A.name} is {m} x {n}; leave it out for rectangles")
    if A.dtype not in (torch.float32, torch.float64):
        raise InputError(f"spectral_density: expected a float32 or float64 operator, got {A.dtype}; use A.double()")
    if probes < 2 or steps < 1:
        raise InputError(f"spectral_density: expected probes >= 2 and steps >= 1, got {probes} and {steps}")
    if width is not None and not 0 < width < math.inf:
        raise InputError(f"spectral_density: expected a positive width, got {width}")
    if isinstance(points, Tensor) and (points.dim() != 1 or len(points) < 1):
        raise InputError(f"spectral_density: expected a grid of shape (points,), got {tuple(points.shape)}")
    if isinstance(points, int) and points < 2:
        raise InputError(f"spectral_density: expected 2 points or more, got {points}")

    side = min(m, n)
    steps = min(steps, side)
    narrow = A if n <= m else A.T
    start = random_signs(side, probes, seed).to(A.device, A.dtype).expand(batch, probes, side)
    with measuring():
        other = random_signs(max(m, n), 2, seed).to(start).expand(batch, 2, max(m, n))
        unit = InUnit.of(narrow, start[:, :2].mT.contiguous(), None if symmetric else other.mT.contiguous())
        main, side_band, exact, products = recurrence_of(unit, start, steps, symmetric)
    exact |= steps == side
    rule = gauss_rule(main, side_band, symmetric, unit.exponent)
    half_steps = max(1, steps // 2)
    half = gauss_rule(main[..., :half_steps], side_band[..., : half_steps - 1], symmetric, unit.exponent)

    largest = scaled(rule.nodes, -unit.exponent).abs().amax((1, 2))  # B, in the unit
    hidden = MARGIN * unit.lost
    if not (hidden <= HIDDEN_ALLOWED * largest).all():
        raise InputError(
            f"spectral_density: products of {A.name} underflow in {str(A.dtype).removeprefix('torch.')}, for samples "
            f"{(~(hidden <= HIDDEN_ALLOWED * largest)).nonzero().flatten().tolist()}; use A.double(), or "
            "a multiple of it"
        )
    lowest, highest = float(rule.nodes.min()), float(rule.nodes.max())
    if width is None:
        width = (highest - lowest or max(highest, -lowest) or 1.0) / steps
    if isinstance(points, Tensor):
        grid = points.detach().to("cpu", torch.float64)
    else:
        grid = torch.linspace(
            lowest - 4 * width, highest + 4 * width, points or GRID_POINTS, dtype=torch.float64, device="cpu"
        )
    if not (width > 0 and grid.isfinite().all() and width / SQRT_TWO_PI > torch.finfo(torch.float64).smallest_normal):
        raise InputError(
            f"spectral_density: a curve over values from {lowest:.1e} to {highest:.1e} is beyond the range of float64; "
            "take a multiple of the operator"
        )
    full_curve, half_curve = _smooth(rule, grid, width), _smooth(half, grid, width)  # B, probes, points
    density, error = _over_probes(full_curve)
    bias = torch.where(exact[..., None], 0, full_curve - half_curve).mean(1).abs()
    return Density(
        values=grid,
        density=density,
        standard_error=error,
        bias=bias,
        width=width,
        rule=rule,
        half=half,
        exact=exact,
        rounding=upper(relative_rounding(A) * largest + hidden, unit.exponent),
        shape=A.shape,
        symmetric=symmetric,
        probes=probes,
        steps=steps,
        products=products,
        dtype=A.dtype,
        seed=seed,
    )


def _smooth(rule: Rule, grid: Tensor, width: float) -> Tensor:
    """sum_i w_i Gauss(x - theta_i): B, probes, points; one sample at a time, for the memory's sake."""
    curves = []
    for nodes, weights in zip(rule.nodes, rule.weights, strict=True):
        bumps = torch.exp(-0.5 * ((grid - nodes[..., None]) / width) ** 2)  # probes, steps, points
        curves.append((weights[..., None] * bumps).sum(1) / (width * SQRT_TWO_PI))
    return torch.stack(curves)


def _over_probes(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard error over the second axis; the squares behind it in a unit of their own."""
    exponent = exponents(numbers)
    inside = scaled(numbers, -exponent)
    error = inside.std(1) / math.sqrt(numbers.shape[1])
    return scaled(inside.mean(1), exponent), upper(error, exponent)
