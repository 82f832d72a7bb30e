"""Which routes give the derivative of a function, and whether it has one per sample.

Three things are seen before any number is made of a Jacobian, from a push and a few pulls of random vectors:

1. The derivative is finite (a square root or a norm at exactly zero has none).
2. <J v, u> = <v, J^T u> in every sample: a route that drops a tangent is passed over (`derivative`). Where float32
   disagrees by more than its rounding, float64 decides whether that was rounding. Where all rows of J would be pulled
   back for a push, no row is made here: <J v, u> is <v, the pull of u + w> - <v, the pull of w> then, which is another
   number where the pull that the rows come from is not linear (a backward that clips).
3. No sample depends on another: batch statistics, or a gate from a neighbour, would mix them. Samples are split in
   two halves by each binary digit of their position, and the outputs of each half may reach back to that half alone:
   with log2 B splits every pair of samples is apart at least once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.derivative import ALL_ROWS, ONE_PULL, PULLS, PUSHES, Derivative, Routes, attempt, by_sample
from skipscope.numerics import normal, random_numbers

# Of |<J v, u> - <v, J^T u>|, relative to its size for unrelated vectors, |J v| |u| / sqrt(m).
AGREE_WITHIN = {torch.float32: 1e-4, torch.float64: 1e-6}  # below it, the two agree
PERHAPS_ROUNDING = 1e-2  # up to here it may be rounding, where there is no float64 to compare with


def agreeing_routes(derivative: Derivative, name: str) -> Routes:
    """The first pair of routes that agree; an InputError where there is none, or no derivative per sample."""
    numbers = random_numbers("probes", 0)
    state, batch = derivative.state, derivative.state.shape[derivative.axis]
    v, u = (normal(shape, numbers).to(state) for shape in (state.shape, derivative.output_shape))
    reasons = []
    for pull in PULLS:
        back = attempt(partial(_pulled_apart, derivative, u, pull, batch, name))
        if isinstance(back, str):
            reasons.append(f"{pull} fails ({back})")
            continue
        for push in PUSHES:
            seen = attempt(partial(_Seen.of, derivative, u, v, push))
            if isinstance(seen, str):
                reasons.append(f"{push} fails ({seen})")
                continue
            _check_finite(seen.product, name)
            error = _disagreement(derivative, seen, v, back)
            agree = error <= AGREE_WITHIN.get(state.dtype, PERHAPS_ROUNDING)
            if agree or _is_rounding(derivative, push, pull, u, v, error):
                derivative.forget()
                return Routes(push, pull)
            reasons.append(f"{push} and {pull} differ by {error:.1e}")
    raise InputError(
        f"{name} has no derivative that can be trusted: {'; '.join(dict.fromkeys(reasons))}. An operation in it, a "
        "custom one or a fused kernel, lacks a derivative or drops it; write it with plain PyTorch operations, or "
        "leave the unit out"
    )


@dataclass(frozen=True)
class _Seen:
    """What a push is seen by: a product, and the vector whose inner product with it is <J v, u>."""

    product: Tensor
    other: Tensor
    axis: int  # of the samples, in both

    @classmethod
    def of(cls, derivative: Derivative, u: Tensor, v: Tensor, push: str) -> _Seen:
        if push == ALL_ROWS:
            if reason := derivative.too_many_rows():
                raise NotImplementedError(reason)
            w = normal(u.shape, random_numbers("probes", 1)).to(u)
            both, alone = derivative.pull(torch.stack([u + w, w]), ONE_PULL)
            return cls(both - alone, v, derivative.axis)
        return cls(derivative.push(v[None], push)[0], u, derivative.exit_axis)


def _pulled_apart(derivative: Derivative, u: Tensor, route: str, batch: int, name: str) -> Tensor:
    """J^T u, of one half of the samples and then of the other half, for each way to split them in two; no half may
    reach the other. One vector at a time: there may be no memory for more."""
    back = torch.zeros_like(derivative.state)
    for number, half in enumerate(_halves(batch)):
        pulled = derivative.pull((u * _along(half, derivative.exit_axis, u))[None], route)[0]
        _check_finite(pulled, name)
        if batch > 1:
            _check_apart(pulled, half, derivative.axis, name)
        if number < 2:
            back += pulled
    return back


def _halves(batch: int) -> Tensor:
    """(vectors, B) of ones and zeros, a half of the samples and then the other half; a single sample is whole."""
    positions = torch.arange(batch, device="cpu")
    digits = [(positions >> digit) & 1 for digit in range((batch - 1).bit_length())]
    return torch.stack([half for ones in digits for half in (ones, 1 - ones)]) if digits else torch.ones(1, 1)


def _along(half: Tensor, axis: int, like: Tensor) -> Tensor:
    shape = [-1 if i == axis else 1 for i in range(like.dim())]
    return half.to(like).reshape(shape)


def _disagreement(derivative: Derivative, seen: _Seen, v: Tensor, back: Tensor) -> float:
    """The largest over the samples."""
    entries = seen.other.numel() * v.numel()
    lost = torch.finfo(seen.product.dtype).tiny * entries**0.5  # in numbers below the smallest normal one
    product, other = (by_sample(tensor, seen.axis) for tensor in (seen.product, seen.other))
    back, v = (by_sample(tensor, derivative.axis) for tensor in (back, v))
    difference = ((product * other).sum(1) - (back * v).sum(1)).abs() - lost  # B
    # What an inner product of unrelated vectors comes to, seen from either side.
    size = torch.maximum(_size(product, other), _size(back, v)).clamp_min(torch.finfo(torch.float64).tiny)
    return float((difference.clamp_min(0) / size).max())


def _size(a: Tensor, b: Tensor) -> Tensor:
    return a.norm(dim=1) * b.norm(dim=1) / a.shape[1] ** 0.5


def _is_rounding(derivative: Derivative, push: str, pull: str, u: Tensor, v: Tensor, error: float) -> bool:
    """Does the disagreement go away in float64?"""
    if derivative.state.dtype == torch.float64:
        return False
    exact, u, v = derivative.double(), u.double(), v.double()
    back, seen = attempt(partial(exact.pull, u[None], pull)), attempt(partial(_Seen.of, exact, u, v, push))
    if isinstance(back, str) or isinstance(seen, str) or seen.product.dtype != torch.float64:
        return error <= PERHAPS_ROUNDING
    return _disagreement(exact, seen, v, back[0]) <= AGREE_WITHIN[torch.float64]


def _check_finite(product: Tensor, name: str) -> None:
    if not torch.isfinite(product).all():
        raise InputError(
            f"the derivative of {name} has NaN or infinite entries, although its states are finite (a square root, a "
            "norm or a division at exactly zero?); no number can be made of it: change the batch, or add a small "
            "constant there"
        )


def _check_apart(pulled: Tensor, half: Tensor, axis: int, name: str) -> None:
    reached = pulled.movedim(axis, 0).flatten(1).ne(0).any(1)  # B
    if (reached & half.eq(0).to(reached.device)).any():
        raise InputError(
            f"{name} couples the samples of a batch, so it has no Jacobian per sample. If axis {axis} of the state is "
            "not the batch (sequences as (steps, batch, features), the nodes of a graph), name the axis that is: "
            "ss.trace(model, x, batch_axis=1); a batch norm without running statistics needs them; else measure one "
            "sample at a time"
        )
