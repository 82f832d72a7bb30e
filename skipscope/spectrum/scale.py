"""Powers of two: how a solver works at any scale, and how it sees what underflow took.

Squares leave float64 at 1e-162 and at 1e154, float32 already at 1e-23 and 1e19, so that norms, Gram matrices and
tolerances of an operator far from 1 are zero or infinite. Multiplication by a power of two is exact, so every solver
works with A / 2^e, one exponent e per sample, and multiplies its results by 2^e at the end (`InUnit`).

What underflows inside a product cannot be seen in the product. But a linear map commutes with powers of two:

    A (2^p v) = 2^p (A v)    bit for bit, unless a number left the range of the type on the way.

So the products that decide about a result are made afresh with vectors as large as the range allows
(`fresh_products`): what was lost in the ordinary products is not lost there, and becomes a difference. A number that is
exactly zero in both is zero by structure (an inactive ReLU, an empty row), not by underflow: it would have to lie below
2^-1500 in float64, below 2^-200 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

from skipscope.linear.operator import Operator

ROOM = 16  # powers of two below the largest number: the most that vectors of entries near 1 are multiplied by
LEAST_ROOM = 8  # powers of two: a product that overflows when multiplied by so few has no room to be tested in
MARGIN = 10.0  # times an estimate of an error from few random vectors: never seen to be too small
PRODUCT_ROUNDING = 8.0  # times eps: products may differ by this much without any underflow


def range_of(dtype: torch.dtype) -> int:
    """The binary exponent of the largest number: 128 in float32, 1024 in float64."""
    return math.frexp(torch.finfo(dtype).max)[1]


def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number, 1.4e-45 in float32: numbers near it are known to no more than this."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def exponents(numbers: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """(B,) on the CPU: e with the largest magnitude of (B, ...) in [2^(e-1), 2^e); the lowest of the type for zeros.

    0 within the middle of the range (2^-32 to 2^32 in float32), where squares and their sums are safe: ordinary numbers
    stay as they are. The range is that of `dtype`, the numbers' own unless given.
    """
    top = range_of(dtype or numbers.dtype)
    if not numbers.numel():
        return torch.zeros(len(numbers), dtype=torch.long, device="cpu")
    largest = _largest(numbers)
    return _if_far(torch.where(largest > 0, torch.frexp(largest).exponent.long(), 3 - top), top)


def _largest(numbers: Tensor) -> Tensor:  # B
    return numbers.detach().abs().flatten(1).amax(1).double().cpu()


def _if_far(exponent: Tensor, top: int) -> Tensor:
    return torch.where(exponent.abs() > top // 4, exponent, 0)


def scaled(numbers: Tensor, exponent: Tensor | int) -> Tensor:
    """numbers (B, ...) times 2^exponent (B,), exactly but for what leaves the range of the type.

    In two steps, since 2^1100 is no number where 2^-1070 times 2^1100 is.
    """
    exponent = torch.as_tensor(exponent, device="cpu").reshape(-1)
    if not exponent.any():
        return numbers
    half = torch.div(exponent, 2, rounding_mode="trunc")
    for part in (half, exponent - half):
        power = torch.ldexp(torch.ones(len(part), dtype=torch.float64, device="cpu"), part)
        numbers = numbers * power.to(numbers.dtype).to(numbers.device).view(-1, *[1] * (numbers.dim() - 1))
    return numbers


@dataclass(frozen=True)
class Accuracy:
    """How well the values of every sample are known, in the unit 2^exponent."""

    exponent: Tensor  # B
    scale: Tensor  # B: the largest value
    lost: Tensor  # B: of the operator, where underflow hides it from the products
    settled: Tensor  # B: these are the values that were asked for, as far as a second trial can show

    @classmethod
    def together(cls, parts: Sequence[Accuracy]) -> Accuracy:
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def stated(
        self, values: Tensor, residuals: Tensor, tolerance: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values, residuals and `converged` (B, k) as the user gets them, in the operator's type.

        What that type cannot hold of a value is a part of its residual: below the smallest normal number it loses
        digits, above the largest all of them. A residual is rounded up.
        """
        result = scaled(values, self.exponent).to(dtype)
        missing = (scaled(result.double(), -self.exponent) - values).abs()
        residuals = residuals + torch.where(missing <= torch.finfo(dtype).eps * values.abs(), 0.0, missing)
        stated = scaled(residuals, self.exponent).to(dtype)
        stated = torch.where(residuals > 0, stated.clamp_min(smallest(dtype)), stated)
        lost, scale, settled = (part.to(values.device)[:, None] for part in (self.lost, self.scale, self.settled))
        return result, stated, settled & (residuals + lost <= tolerance * scale)


def default_tolerance(dtype: torch.dtype) -> float:
    """Of a residual, relative to the largest value: 4e-11 in float64, 2e-5 in float32."""
    return torch.finfo(dtype).eps ** (2 / 3)


def rounding(operator: Operator) -> float:
    """How far a product may be from itself, repeated or in other order: below it, nothing was lost to underflow."""
    return PRODUCT_ROUNDING * operator.eps


def upper(bound: Tensor, exponent: Tensor | int) -> Tensor:
    """A bound times 2^exponent, rounded up: what is not zero does not become zero."""
    result = scaled(bound, exponent)
    return torch.where(bound > 0, result + smallest(bound.dtype), result)


def fresh_products(apply: Callable[[Tensor], Tensor], vectors: Tensor, exponent: Tensor) -> Tensor:
    """A v / 2^exponent in float64, (B, m, k), from vectors (B, n, k) that were made as large as the range allows.

    Where that overflows, by half of the powers, and so on; what overflows even so is returned as it is.
    """
    top = range_of(vectors.dtype)
    power = (top // 2 - exponent).clamp(ROOM - top, top - ROOM)  # B
    while True:
        result = apply(scaled(vectors, power)).detach()
        finite = result.isfinite().flatten(1).all(1).cpu()
        if (finite | (power.abs() < LEAST_ROOM)).all():
            return scaled(result.double(), -power - exponent)
        power = torch.where(finite, power, torch.div(power, 2, rounding_mode="trunc"))


class InUnit(Operator):
    """A / 2^e for each sample, with e such that a first product has entries near 1 (0 where they are not far from it).

    Half of the powers are taken from the vectors and half from the products, so that neither leaves the range.
    `lost` (B,) estimates |E|_F, in the unit, for the part E of A that underflow hides from ordinary products.
    """

    def __init__(self, operator: Operator, exponent: Tensor, lost: Tensor) -> None:
        self.operator, self.exponent, self.lost = operator, exponent, lost
        self.shape, self.dtype, self.device = operator.shape, operator.dtype, operator.device
        self.name = operator.name
        room = range_of(self.dtype) - ROOM
        self.power = -torch.div(exponent, 2, rounding_mode="trunc").clamp(-room, room)
        self.products = [0] * self.shape[0]  # vectors that finding the unit took

    @classmethod
    def of(cls, operator: Operator, right: Tensor, left: Tensor | None = None) -> InUnit:
        """right: random vectors (B, n, k), left: (B, m, k) where transposed products will be needed too. Each is
        multiplied as it is, as large as the range allows, and, far from 1, as the unit has it."""
        tried = [(operator.matmat, right)] + ([(operator.rmatmat, left)] if left is not None else [])
        first = [apply(vectors).detach() for apply, vectors in tried]
        guess = exponents(torch.cat(first, 1).nan_to_num(0, 0, 0))
        fresh = [fresh_products(apply, vectors, guess) for apply, vectors in tried]
        seen = _largest(torch.cat(fresh, 1))  # B, in the unit of the guess
        more = torch.where(seen.isfinite() & (seen > 0), torch.frexp(seen).exponent.long(), 0)
        exponent = _if_far(guess + more, range_of(operator.dtype))
        unit = cls(operator, exponent, torch.zeros(operator.shape[0], device="cpu"))
        if unit.power.any():
            again = [apply(scaled(vectors, unit.power)).detach() for apply, vectors in tried]
            tight = ~torch.cat(again, 1).isfinite().flatten(1).all(1)  # overflow inside: vectors of length 1 must do
            first = [torch.where(tight[:, None, None], *pair) for pair in zip(first, again, strict=True)]
            unit.power = torch.where(tight.cpu(), 0, unit.power)
        for (_, vectors), product, better in zip(tried, first, fresh, strict=True):
            ordinary = scaled(product, -unit.power - exponent).double()
            difference = scaled(better, guess - exponent) - ordinary
            off, size, length = (
                torch.linalg.vector_norm(part, dim=(1, 2)).cpu() for part in (difference, ordinary, vectors.double())
            )
            lost = off * vectors.shape[1] ** 0.5 / length
            unit.lost = torch.maximum(unit.lost, torch.where(off <= rounding(operator) * size, 0.0, lost))
        each = sum(vectors.shape[2] for _, vectors in tried)
        unit.products = [each * (3 if far else 2) for far in exponent.tolist()]
        return unit

    @cached_property
    def _is_near(self) -> bool:
        """Whether every unit is 1, so that nothing has to be multiplied."""
        return not (self.power.any() or self.exponent.any())

    @property
    def eps(self) -> float:
        return self.operator.eps

    def _matmat(self, V: Tensor) -> Tensor:
        return self._in_unit(self.operator.matmat, V)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self._in_unit(self.operator.rmatmat, U)

    def _in_unit(self, apply: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
        if self._is_near:
            return apply(vectors).detach()
        return scaled(apply(scaled(vectors, self.power)).detach(), -self.power - self.exponent)

    def take(self, samples: Sequence[int]) -> InUnit:
        return self._of(self.operator.take(samples), samples)

    def go_on_with(self, samples: Sequence[int]) -> InUnit:
        return self._of(self.operator.go_on_with(samples), samples)

    def _of(self, operator: Operator, samples: Sequence[int]) -> InUnit:
        chosen = list(samples)
        part = InUnit(operator, self.exponent[chosen], self.lost[chosen])
        part.power = self.power[chosen]
        return part
