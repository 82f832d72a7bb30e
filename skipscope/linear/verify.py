"""Two tests of a linearisation: is the Jacobian the derivative, and is its transpose its transpose?

The Jacobian test (paper D, appendix A): along a direction d,

    r0(e) = |f(x + e d) - f(x)|             falls one order for each order of e,
    r1(e) = |f(x + e d) - f(x) - e J d|     falls two orders where f is smooth.

A piecewise linear f has no second order: r1 drops to rounding as soon as no kink lies between x and x + e d. Both count
as passed, and the result says which was seen. Where x itself lies on a kink (a ReLU at exactly zero, as behind a black
patch of an image), f bends there, |f(x + e d) + f(x - e d) - 2 f(x)| falls one order only, and f has no derivative that
could be tested: the result says so. The adjoint test compares <J v, u> with <v, J^T u> for random u and v.
Everything runs in float64, whatever the operator's own type, unless it cannot be evaluated so.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.linear.jacobian import Jacobian
from skipscope.linear.operator import Operator
from skipscope.numerics import measuring, seed_of

STEPS = tuple(10.0**-k for k in range(9))
ADJOINT_TOLERANCE = 1e-10
PIECEWISE_TOLERANCE = 1e-8  # r1 / r0 once no kink is crossed
SMOOTH_SLOPE = 1.9
BEND_STEP = 1e-7
BEND = 1e-3  # of the way along a step, by which both sides of a kink differ at least; a smooth function: about the step
ROUNDING = 1e3  # multiples of eps times the output's norm below which a residual is rounding alone


@dataclass(frozen=True)
class Verification:
    """The worst over all samples of what was seen."""

    adjoint_error: float  # |<Jv,u> - <v,J^T u>| / (|Jv| |u|)
    adjoint_tolerance: float  # 1e-10, or 100 rounding units of an operator that has no float64
    steps: tuple[float, ...]
    zeroth: Tensor | None  # r0, (B, steps); None for operators that are not the derivative of a function
    first: Tensor | None  # r1, (B, steps)
    slopes: tuple[float, float] | None  # of r0 and r1, fitted above rounding
    seen: str  # smooth | piecewise linear | linear | at a kink | wrong | not a derivative

    @property
    def passed(self) -> bool:
        return self.adjoint_error <= self.adjoint_tolerance and self.seen != "wrong"

    def __str__(self) -> str:
        adjoint = f"adjoint test: relative error {self.adjoint_error:.1e}"
        if self.slopes is None:
            return f"{adjoint}; no Jacobian test: the operator is not the derivative of a function"
        meaning = {
            "smooth": f"the residual falls with slope {self.slopes[1]:.2f}, as for a smooth function",
            "piecewise linear": "the residual drops to rounding where no kink is crossed: piecewise linear",
            "linear": "the residual is rounding at every step: the function is linear here",
            "at a kink": "the state lies on a kink, where there is no derivative: it says nothing",
            "wrong": f"the residual falls with slope {self.slopes[1]:.2f} only: this is not the derivative",
        }[self.seen]
        return f"{adjoint}; Jacobian test: {meaning}"


def verify(J: Operator, *, seed: int = 0) -> Verification:
    """Test an operator; `.passed` and the numbers behind it."""
    J = J.double()
    generator = torch.Generator("cpu").manual_seed(seed_of("probes", seed))
    batch, m, n = J.shape
    v = torch.randn(batch, n, 1, dtype=torch.float64, generator=generator, device="cpu").to(J.device)
    u = torch.randn(batch, m, 1, dtype=torch.float64, generator=generator, device="cpu").to(J.device)
    pushed, pulled = J.matmat(v), J.rmatmat(u)
    left, right = (pushed * u).sum((1, 2)), (v * pulled).sum((1, 2))
    scale = torch.maximum(pushed.norm(dim=(1, 2)) * u.norm(dim=(1, 2)), v.norm(dim=(1, 2)) * pulled.norm(dim=(1, 2)))
    adjoint = float(((left - right).abs() / scale.clamp_min(torch.finfo(torch.float64).tiny)).max())
    tolerance = max(ADJOINT_TOLERANCE, 100 * J.eps) if J.eps > torch.finfo(torch.float64).eps else ADJOINT_TOLERANCE
    if not isinstance(J, Jacobian):
        return Verification(adjoint, tolerance, STEPS, None, None, None, "not a derivative")
    direction = v / v.norm(dim=1, keepdim=True)
    zeroth, first, floor = _residuals(J, direction)
    slopes = _slope(zeroth, floor), _slope(first, floor)
    seen = _judged(zeroth, first, floor, slopes[1])
    if seen == "wrong" and _bends(J, direction):
        seen = "at a kink"
    return Verification(adjoint, tolerance, STEPS, zeroth, first, slopes, seen)


def _residuals(J: Jacobian, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """r0 and r1 for every step and the rounding floor: (B, steps), (B, steps), (B, 1). One step at a time: a unit's
    context belongs to this batch."""
    size = J.state.norm().item() or 1.0
    direction = J.unflatten(v)[0] * size
    with torch.no_grad(), measuring():
        start = J.function(J.state)
        derivative = J.unflatten_output(J.matmat(v))[0] * size
        zeroth, first = [], []
        for step in STEPS:
            moved = J.function(J.state + step * direction) - start
            zeroth.append(_norms(moved, J.exit_axis))
            first.append(_norms(moved - step * derivative, J.exit_axis))
    eps = torch.finfo(torch.float64).eps
    return torch.stack(zeroth, 1), torch.stack(first, 1), ROUNDING * eps * _norms(start, J.exit_axis)[:, None]


def _bends(J: Jacobian, v: Tensor) -> bool:
    """Do the slopes on both sides of the state differ, at steps so short that a smooth function is straight?"""
    step = BEND_STEP * J.unflatten(v)[0] * (J.state.norm().item() or 1.0)
    with torch.no_grad(), measuring():
        start, after, before = (J.function(J.state + way * step) for way in (0, 1, -1))
    bent, moved = _norms(after + before - 2 * start, J.exit_axis), _norms(after - start, J.exit_axis)
    return bool((bent > BEND * moved).any())


def _norms(tensor: Tensor, axis: int) -> Tensor:
    return tensor.movedim(axis, 0).flatten(1).norm(dim=1)


def _slope(residuals: Tensor, floor: Tensor) -> float:
    """The smallest slope over the samples of log residual against log step, between consecutive steps above rounding,
    from the third step on (the first steps may be too long for a Taylor series)."""
    slopes = []
    for row, low in zip(residuals, floor, strict=True):
        pairs = [(i, i + 1) for i in range(2, len(STEPS) - 1) if row[i + 1] > low]
        values = [float((row[a] / row[b]).log10()) for a, b in pairs]
        if values:
            slopes.append(sorted(values)[len(values) // 2])
    return min(slopes, default=float("inf"))


def _judged(zeroth: Tensor, first: Tensor, floor: Tensor, slope: float) -> str:
    clean = first <= torch.maximum(PIECEWISE_TOLERANCE * zeroth, floor)
    if clean.all():
        return "linear"
    # From some step on there is nothing left but rounding, while the step before was far above it: no second order.
    ends = clean[:, 2:].any(1)
    drop = all(_drops(row, low) for row, low in zip(first, floor, strict=True))
    if drop and bool(ends.all()):
        return "piecewise linear"
    return "smooth" if slope >= SMOOTH_SLOPE else "wrong"


def _drops(row: Tensor, floor: Tensor) -> bool:
    """Does the residual fall by more than three orders in one step, or start at rounding?"""
    above = [i for i in range(len(row)) if row[i] > floor]
    if not above:
        return True
    last = above[-1]
    return last + 1 < len(row) and bool(row[last] > 1e3 * row[last + 1])
