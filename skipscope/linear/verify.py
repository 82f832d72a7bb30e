"""Two tests of a linearisation: is the Jacobian the derivative, and is its transpose its transpose?

The Jacobian test (paper D, appendix A): along a direction d of the length of the state,

    r0(e) = |f(x + e d) - f(x)|             falls one order for each order of e,
    r1(e) = |f(x + e d) - f(x) - e J d|     falls two orders where f is smooth.

A piecewise linear f has no second order: r1 drops to rounding as soon as no kink lies between x and x + e d. Both count
as passed, and the result says which was seen. Where x itself lies on a kink (a ReLU at exactly zero, as behind a black
patch of an image) f has no derivative, but only at the outputs that bend there, |f(x + e d) + f(x - e d) - 2 f(x)|
falls one order only: these entries are left out, and all others are tested.

Each sample is judged by itself. Rounding of f(x), which a large offset of the output makes large, hides a wrong
Jacobian where r0 is not far above it: a sample without enough longer steps, or with no entry off its kinks, is *not
tested*, which is neither passed nor failed.

The adjoint test compares <J v, u> with <v, J^T u> for random u and v. Everything runs in float64, whatever the
operator's own type, unless it cannot be evaluated so; then in its own, with its rounding, and by longer steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.linear.derivative import by_sample
from skipscope.linear.jacobian import Jacobian
from skipscope.linear.operator import Operator
from skipscope.numerics import measuring, normal, random_numbers

STEPS = tuple(10.0**-k for k in range(9))
ADJOINT_TOLERANCE = 1e-10
PIECEWISE_TOLERANCE = 1e-8  # r1 / r0 once no kink is crossed
SMOOTH_SLOPE = 1.9
# Multiples of eps times the output's norm below which a residual is rounding alone. In float32 fewer of them: the steps
# that are left above must not be too long.
ROUNDING_UNITS = {torch.float32: 30.0, torch.float64: 1e3}
KINK_STEP = {torch.float32: 1e-3, torch.float64: 1e-7}
KINK_BEND = {torch.float32: 0.1, torch.float64: 1e-3}  # of a step, by which both sides of a kink differ at least
VISIBLE_ERROR = 100.0  # r0 over rounding from where on an error of 1 % of the derivative would be seen
FEWEST_STEPS = 3  # that an error could be seen at
WORST_FIRST = ("wrong", "not tested", "at a kink", "smooth", "piecewise linear", "linear")


@dataclass(frozen=True)
class Verification:
    """What was seen, and of each sample."""

    adjoint_error: float  # |<Jv,u> - <v,J^T u>| / (|Jv| |u|), the largest over the samples
    adjoint_tolerance: float  # 1e-10, or 100 rounding units of an operator that has no float64
    steps: tuple[float, ...]
    zeroth: Tensor | None  # r0, (B, steps); None for operators that are not the derivative of a function
    first: Tensor | None  # r1, (B, steps)
    slopes: tuple[float, float] | None  # of r0 and r1, fitted above rounding, the smallest over the samples
    seen: str  # smooth | piecewise linear | linear | at a kink | not tested | wrong | not a derivative; the worst
    samples: tuple[str, ...] = ()  # the same of each sample

    @property
    def verdict(self) -> str:
        """passed | failed | not tested"""
        if not self.adjoint_error <= self.adjoint_tolerance or self.seen == "wrong":  # NaN fails too
            return "failed"
        return "not tested" if self.seen == "not tested" else "passed"

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    def __str__(self) -> str:
        adjoint = f"adjoint test: relative error {self.adjoint_error:.1e}"
        if self.slopes is None:
            return f"{adjoint}; no Jacobian test: the operator is not the derivative of a function"
        meaning = {
            "smooth": f"the residual falls with slope {self.slopes[1]:.2f}, as for a smooth function",
            "piecewise linear": "the residual drops to rounding where no kink is crossed: piecewise linear",
            "linear": "the residual is rounding at every step: the function is linear here",
            "at a kink": "right, but for entries that lie on a kink, where there is no derivative",
            "not tested": "not tested: rounding of the output, or kinks, hide what a wrong derivative would show",
            "wrong": f"the residual falls with slope {self.slopes[1]:.2f} only: this is not the derivative",
        }[self.seen]
        counts = Counter(self.samples)
        each = "" if len(counts) < 2 else f" ({', '.join(f'{n} samples {seen}' for seen, n in counts.items())})"
        return f"{adjoint}; Jacobian test: {meaning}{each}"


def verify(J: Operator, *, seed: int = 0) -> Verification:
    """Test an operator; `.passed`, `.verdict` and the numbers behind them."""
    J = J.double()
    function = J.derivative_of()  # of the operator that is multiplied by, so that rows which it keeps are made once
    numbers = random_numbers("probes", seed)
    batch, m, n = J.shape
    v, u = (normal((batch, size, 1), numbers, device=J.device) for size in (n, m))
    pushed, pulled = J.matmat(v), J.rmatmat(u)
    left, right = (pushed * u).sum((1, 2)), (v * pulled).sum((1, 2))
    scale = torch.maximum(pushed.norm(dim=(1, 2)) * u.norm(dim=(1, 2)), v.norm(dim=(1, 2)) * pulled.norm(dim=(1, 2)))
    adjoint = float(((left - right).abs() / scale.clamp_min(torch.finfo(torch.float64).tiny)).max())
    tolerance = max(ADJOINT_TOLERANCE, 100 * J.eps) if J.eps > torch.finfo(torch.float64).eps else ADJOINT_TOLERANCE
    if function is None:
        return Verification(adjoint, tolerance, STEPS, None, None, None, "not a derivative")
    whole, samples = function
    zeroth, first, floor, bent = _residuals(whole, seed)
    zeroth, first, floor, bent = (part[samples] for part in (zeroth, first, floor, bent))
    judged = [_judged(*rows) for rows in zip(zeroth, first, floor.tolist(), bent.tolist(), strict=True)]
    slopes = min(_slope(row, low) for row, low in zip(zeroth, floor, strict=True)), min(slope for _, slope in judged)
    seen = tuple(kind for kind, _ in judged)
    return Verification(
        adjoint, tolerance, STEPS, zeroth, first, slopes, min(seen, key=WORST_FIRST.index), samples=seen
    )


def _residuals(J: Jacobian, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """r0 and r1 of every sample and step (B, steps), rounding (B,) and whether some entries bend (B,).

    One step at a time: a unit's context belongs to this batch. Each sample moves by steps of its own length."""
    dtype, axis, exit_axis = J.state.dtype, J.axis, J.exit_axis
    v = normal((J.shape[0], J.shape[2], 1), random_numbers("probes", seed)).to(J.state)
    lengths = J.state.movedim(axis, 0).flatten(1).double().norm(dim=1)  # B
    v = v / v.norm(dim=1, keepdim=True) * torch.where(lengths > 0, lengths, 1.0).to(v)[:, None, None]
    direction = J.unflatten(v)[0]
    with torch.no_grad(), measuring():
        start = J.function(J.state).double()
        derivative = J.unflatten_output(J.matmat(v))[0].double()

        def moved(step: float) -> Tensor:
            """(B, m)"""
            return by_sample(J.function(J.state + step * direction).double() - start, exit_axis)

        size = ROUNDING_UNITS[dtype] * torch.finfo(dtype).eps * by_sample(start.abs(), exit_axis)  # B, m
        short = KINK_STEP[dtype]
        ahead, behind = moved(short), moved(-short)
        length = ahead.abs().maximum(behind.abs()).square().mean(1, keepdim=True).sqrt()
        smooth = (ahead + behind).abs() <= KINK_BEND[dtype] * length + size  # B, m
        predicted = by_sample(derivative, exit_axis)
        zeroth, first = [], []
        for step in STEPS:
            change = moved(step)
            zeroth.append((change * smooth).norm(dim=1))
            first.append(((change - step * predicted) * smooth).norm(dim=1))
    return torch.stack(zeroth, 1), torch.stack(first, 1), (size * smooth).norm(dim=1), (~smooth).any(1)


def _judged(zeroth: Tensor, first: Tensor, floor: float, bent: bool) -> tuple[str, float]:
    """What was seen of one sample (steps,), and the slope of its first-order residual."""
    slope = _slope(first, floor)
    visible = zeroth > VISIBLE_ERROR * floor
    if int(visible.sum()) < FEWEST_STEPS:
        constant = not bent and not zeroth.any() and not first.any()  # nothing moves, as it should
        return "linear" if constant else "not tested", slope
    clean = first <= (PIECEWISE_TOLERANCE * zeroth).clamp_min(floor)
    if clean[visible].all():
        seen = "linear"
    elif clean[visible][-1] and _drops(first, floor):
        seen = "piecewise linear"
    elif slope >= SMOOTH_SLOPE and (first / zeroth)[visible].min() <= 1 / VISIBLE_ERROR:
        seen = "smooth"
    else:
        return "wrong", slope
    return ("at a kink" if bent else seen), slope


def _slope(residuals: Tensor, floor: Tensor | float) -> float:
    """The middle one of the slopes of log residual against log step, between consecutive steps above rounding, from
    the third step on (the first steps may be too long for a Taylor series); infinite if rounding comes before."""
    pairs = [(i, i + 1) for i in range(2, len(STEPS) - 1) if residuals[i + 1] > floor]
    values = sorted(float((residuals[a] / residuals[b]).log10()) for a, b in pairs)
    return values[len(values) // 2] if values else float("inf")


def _drops(residuals: Tensor, floor: float) -> bool:
    """Does the residual fall by more than three orders in one step, or start at rounding?"""
    above = [i for i in range(len(residuals)) if residuals[i] > floor]
    if not above:
        return True
    last = above[-1]
    return last + 1 < len(residuals) and bool(residuals[last] > 1e3 * residuals[last + 1])
