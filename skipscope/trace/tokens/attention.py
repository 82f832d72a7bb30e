"""Products that mix positions, for some of them: what they make of their own rows, and constants for all others.

A tensor of keys or values is given in two parts: `own`, the rows of the chosen positions, which are followed, and
`others`, the whole tensor with zeros there, which is constant. So a derivative reaches the own rows alone: it costs as
much as that of a product of so many rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _TimesConstant(torch.autograd.Function):
    """left @ right for a constant `right`. A batch of `left` (of tangents, of cotangents) becomes rows of one product;
    torch's own rule would copy `right` for each of them."""

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        return left @ right

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _TimesConstant.apply(gradient, ctx.saved_tensors[0].mT), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, constant: None) -> Tensor:
        product: Tensor = _TimesConstant.apply(tangent, ctx.saved_tensors[0])
        return product

    @staticmethod
    def vmap(info: Any, axes: tuple[int | None, int | None], left: Tensor, right: Tensor) -> tuple[Tensor, int]:
        if axes[1] is not None or axes[0] is None:  # several constants at once
            left = left.expand(info.batch_size, *left.shape) if axes[0] is None else left.movedim(axes[0], 0)
            right = right if axes[1] is None else right.movedim(axes[1], 0)
            return _TimesConstant.apply(left, right), 0
        moved = left.movedim(axes[0], -2)  # ..., rows, batch, inner
        rows = moved.shape[-3:-1]
        return _TimesConstant.apply(moved.flatten(-3, -2), right).unflatten(-2, rows), moved.dim() - 2


def times_constant(left: Tensor, right: Tensor) -> Tensor:
    """left @ right: (..., rows, inner) and (..., inner, columns)."""
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    product: Tensor = _TimesConstant.apply(left.expand(*batch, *left.shape[-2:]), right)
    return product


class Places:
    """Of the chosen positions among all of them."""

    def __init__(self, positions: Tensor, count: int, dtype: torch.dtype) -> None:
        self.positions, self.count = positions, count
        self._ones = torch.zeros(len(positions), count, dtype=dtype, device=positions.device)
        self._ones[torch.arange(len(positions), device=positions.device), positions] = 1

    def spread(self, columns: Tensor) -> Tensor:
        """(..., chosen) -> (..., all), zero elsewhere. A product with ones: it has every derivative, in batches too."""
        return columns @ self._ones


def columns(left: Tensor, own: Tensor, others: Tensor, places: Places) -> Tensor:
    """left @ right, where the columns of `right` are positions: queries times keys."""
    return times_constant(left, others) + places.spread(left @ own)


def contracted(left: Tensor, own: Tensor, others: Tensor, places: Places) -> Tensor:
    """left @ right, which sums over positions: weights times values."""
    return times_constant(left, others) + left.index_select(-1, places.positions) @ own


def attention(
    query: Tensor,
    key: tuple[Tensor, Tensor | None],
    value: tuple[Tensor, Tensor | None],
    mask: Tensor | None,
    scale: float | None,
    grouped: bool,
    places: Places,
) -> Tensor:
    """`scaled_dot_product_attention` of the chosen queries. key, value: the own rows and the others; where they do not
    depend on the sequence (another sequence's), whole and None. mask: rows of the chosen queries."""
    if grouped:
        key, value = (_repeated(pair, query.shape[-3]) for pair in (key, value))
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    own, others = key
    scores = times_constant(query, own.mT) if others is None else columns(query, own.mT, others.mT, places)
    weights = _weights(scores, mask)
    own, others = value
    return times_constant(weights, own) if others is None else contracted(weights, own, others, places)


def causal_attention(
    query: Tensor,
    key: tuple[Tensor, Tensor | None],
    value: tuple[Tensor, Tensor | None],
    scale: float | None,
    grouped: bool,
    places: Places,
) -> Tensor:
    """Each position sees itself and those before it."""
    mask = torch.arange(places.count, device=query.device) <= places.positions[:, None]
    return attention(query, key, value, mask, scale, grouped, places)


def _weights(scores: Tensor, mask: Tensor | None) -> Tensor:
    """A query that sees nothing has no weights, as in torch's own attention."""
    if mask is None:
        return torch.softmax(scores, -1)
    seen = mask if mask.dtype == torch.bool else mask > float("-inf")
    blind = ~seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)


def _repeated(pair: tuple[Tensor, Tensor | None], heads: int) -> tuple[Tensor, Any]:
    own, others = pair
    times = heads // own.shape[-3]
    return own.repeat_interleave(times, -3), None if others is None else others.repeat_interleave(times, -3)


def is_causal(weights: Tensor) -> bool:
    """Whether no position is mixed into an earlier one: (..., positions, positions), rows are the later ones."""
    return not bool(weights.triu(1).any())


def lets_through(mask: Tensor) -> Tensor:
    """Of a mask of attention, which pairs it lets through; what is added to hide a pair is infinite or nearly so. A row
    in which all are hidden by finite numbers has equal weights everywhere."""
    if mask.dtype == torch.bool:
        return mask
    seen = mask > torch.finfo(mask.dtype).min / 2
    return seen | (~seen.any(-1, keepdim=True) & (mask > float("-inf")))
