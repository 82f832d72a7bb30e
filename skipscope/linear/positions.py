"""Positions of states, tokens or channels, that the rows and columns of a Jacobian are restricted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator
from skipscope.trace.trunk import Span

Pair = tuple[Any, Any]  # at the entry and at the exit; each an index, a list, a slice, or None for all


@dataclass(frozen=True)
class Tokens:
    """Some positions at the entry, and some at the exit."""

    entries: tuple[int, ...]
    exits: tuple[int, ...]

    @classmethod
    def of(cls, span: Span, pair: Pair) -> Tokens:
        shapes = (span.entry_shape, span.exit_shape)
        for shape in shapes:
            _require_tokens(shape)
        found = [_positions(_side(pair, i, "tokens"), shape[0], "tokens") for i, shape in enumerate(shapes)]
        return cls(tuple(found[0].tolist()), tuple(found[1].tolist()))

    @property
    def at_exit(self) -> Tokens:
        return Tokens(self.exits, self.exits)

    @property
    def each_once(self) -> bool:
        return all(len(set(side)) == len(side) for side in (self.entries, self.exits))

    def entry_rows(self, state: Tensor, axis: int) -> Tensor:
        """Of a state with its samples on `axis`, those of the entry positions."""
        return _rows(state, axis, self.entries)

    def exit_rows(self, state: Tensor, axis: int) -> Tensor:
        return _rows(state, axis, self.exits)


def one_position(tokens: Any) -> int | None:
    """The position that is followed to itself: an index, or a pair of equal ones as a Jacobian's `tokens=` is."""
    if tokens is None:
        return None
    pair = tuple(tokens) if isinstance(tokens, Sequence) and len(tokens) == 2 else (tokens, tokens)
    try:
        found = {index(one) for one in pair if not isinstance(one, bool)}
    except TypeError:
        found = set()
    if len(found) != 1:
        raise InputError(
            f"tokens={tokens!r}: expected one position, such as -1, or a pair of it with itself, such as (-1, -1)"
        )
    return found.pop()


def token_axis(samples: int) -> int:
    """Of a state (tokens, channels) of each sample, whose samples lie on another axis."""
    return 1 if samples == 0 else 0


def _rows(state: Tensor, samples: int, positions: Sequence[int]) -> Tensor:
    return state.index_select(token_axis(samples), torch.tensor(positions, device=state.device))


def restricted(operator: Operator, span: Span, *, tokens: Pair | None, channels: Pair | None) -> Operator:
    """Columns of the entry's and rows of the exit's positions.

    A state of tokens has the shape (tokens, channels), an image (channels, height, width), a vector (channels).
    """
    if tokens is None and channels is None:
        return operator
    columns = _chosen(span.entry_shape, _side(tokens, 0, "tokens"), _side(channels, 0, "channels"))
    rows = _chosen(span.exit_shape, _side(tokens, 1, "tokens"), _side(channels, 1, "channels"))
    return operator.restrict(rows, columns)


def restricted_channels(operator: Operator, span: Span, tokens: Tokens, channels: Pair | None) -> Operator:
    """Of an operator from the states of some tokens to those of some."""
    if channels is None:
        return operator
    columns = _chosen((len(tokens.entries), span.entry_shape[1]), None, _side(channels, 0, "channels"))
    rows = _chosen((len(tokens.exits), span.exit_shape[1]), None, _side(channels, 1, "channels"))
    return operator.restrict(rows, columns)


def _side(pair: Pair | None, side: int, name: str) -> Any:
    if pair is None:
        return None
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise InputError(f"{name}={pair!r}: expected a pair (positions at the entry, positions at the exit)")
    return pair[side]


def _chosen(shape: tuple[int, ...], tokens: Any, channels: Any) -> Tensor:
    if tokens is not None:
        _require_tokens(shape)
    grid = torch.arange(torch.Size(shape).numel(), device="cpu").reshape(shape)
    if tokens is not None:
        grid = grid.index_select(0, _positions(tokens, shape[0], "tokens"))
    if channels is not None:
        axis = 1 if len(shape) == 2 else 0
        grid = grid.index_select(axis, _positions(channels, shape[axis], "channels"))
    return grid.flatten()


def _require_tokens(shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise InputError(f"tokens= needs states of shape (tokens, channels), this one has {shape}; use channels=")


def _positions(chosen: Any, size: int, name: str) -> Tensor:
    everything = torch.arange(size, device="cpu")
    if chosen is None:
        return everything
    try:
        picked = everything[chosen]
    except (IndexError, TypeError) as error:
        raise InputError(f"{name}={chosen!r}: expected indices below {size}, a slice or None") from error
    return picked.reshape(-1)
