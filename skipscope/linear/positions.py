"""Restricting a Jacobian to positions of its states: tokens or channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from skipscope.errors import InputError
from skipscope.linear.operator import Operator
from skipscope.trace.trunk import Span


def restricted(
    operator: Operator, span: Span, *, tokens: tuple[Any, Any] | None, channels: tuple[Any, Any] | None
) -> Operator:
    """Columns of the entry's and rows of the exit's positions; each of the pair is an index, a list, a slice or None.

    A state of tokens has the shape (tokens, channels), an image (channels, height, width), a vector (channels).
    """
    if tokens is None and channels is None:
        return operator
    columns = _chosen(span.entry_shape, _side(tokens, 0, "tokens"), _side(channels, 0, "channels"))
    rows = _chosen(span.exit_shape, _side(tokens, 1, "tokens"), _side(channels, 1, "channels"))
    return operator.restrict(rows, columns)


def _side(pair: tuple[Any, Any] | None, side: int, name: str) -> Any:
    if pair is None:
        return None
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise InputError(f"{name}={pair!r}: expected a pair (positions at the entry, positions at the exit)")
    return pair[side]


def _chosen(shape: tuple[int, ...], tokens: Any, channels: Any) -> torch.Tensor:
    if tokens is not None and len(shape) != 2:
        raise InputError(f"tokens= needs states of shape (tokens, channels), this one has {shape}; use channels=")
    grid = torch.arange(torch.Size(shape).numel(), device="cpu").reshape(shape)
    if tokens is not None:
        grid = grid.index_select(0, _positions(tokens, shape[0], "tokens"))
    if channels is not None:
        axis = 1 if len(shape) == 2 else 0
        grid = grid.index_select(axis, _positions(channels, shape[axis], "channels"))
    return grid.flatten()


def _positions(chosen: Any, size: int, name: str) -> torch.Tensor:
    everything = torch.arange(size, device="cpu")
    try:
        picked = everything[chosen]
    except (IndexError, TypeError) as error:
        raise InputError(f"{name}={chosen!r}: expected indices below {size}, a slice or None") from error
    return picked.reshape(-1)
