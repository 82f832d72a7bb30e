"""From values in a solver's unit to what the user gets: values, residuals and whether they have converged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from skipscope.spectrum.scale import scaled, smallest


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
