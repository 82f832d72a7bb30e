"""From a span of the trunk to its Jacobian: which function, at which state, in which floating type, at which positions
of its states (tokens or channels).

What `span.jacobian(x, ...)` calls; `jacobian` has the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.derivative import Routes
from skipscope.linear.jacobian import Jacobian
from skipscope.linear.law import known_spectrum
from skipscope.linear.operator import Operator, Product
from skipscope.trace.trunk import Function, Part, Point, Span, Unit


def jacobian(
    span: Span,
    x: Any,
    *,
    of: Part = "unit",
    tail: bool = False,
    tokens: tuple[Any, Any] | None = None,
    channels: tuple[Any, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Operator:
    """What `span.jacobian(x, ...)` returns; its docstring says what the options mean."""
    parts = get_args(Part)
    if of not in parts or (of != "unit" and not isinstance(span, Unit)):
        raise InputError(f"of={of!r}: expected one of {', '.join(parts)}; branch and skip are parts of a unit")
    if tail and of == "unit":
        raise InputError("tail=True applies the tail to a branch or skip; the unit's own Jacobian has its tail already")
    point = x if isinstance(x, Point) else span.trunk.at(x)
    path: Function = span if of == "unit" else getattr(span, of)
    first = _linearised(path, span.batch_axis, point, dtype)
    operator: Operator = first
    if tail and isinstance(span, Unit) and span.tail:
        after = _linearised(span.tail, first.exit_axis, point, dtype, argument=_sum_in_state_type(span))
        operator = Product((after, first))
    return restricted(operator, span, tokens=tokens, channels=channels)


def _linearised(
    function: Function,
    axis: int,
    point: Point,
    dtype: torch.dtype | None,
    argument: Callable[[Point, torch.dtype | None], Tensor] | None = None,
) -> Jacobian:
    """argument: the state at a point in a floating type; the function's own argument, converted, by default."""

    def state_in(some: Point, type_: torch.dtype | None) -> Tensor:
        if argument is not None:
            return argument(some, type_)
        state = function.argument(some)
        return state if type_ is None else state.to(type_)

    def at(some: Point, type_: torch.dtype | None, routes: Routes | None = None) -> Jacobian:
        state = state_in(some, type_)
        own = state.dtype

        # Nothing here holds the Jacobian itself: with its recorded graphs it is freed as soon as nobody uses it.
        def in_other_form(samples: Sequence[int] | None, other: torch.dtype) -> Jacobian | None:
            part = some if samples is None else some.take(samples)
            if part is None or (other != own and not function.in_any_type):
                return None
            return at(part, other, some.remembered[function])

        made = Jacobian(
            function.bound(some),
            state,
            axis,
            name=function.name,
            in_other_form=in_other_form,
            first_not_finite=some.first_not_finite,
            known_spectrum=partial(known_spectrum, function, some) if isinstance(function, Span) else None,
            exit_axis=function.exit_axis,
            routes=routes or some.remembered.get(function),
        )
        some.remembered[function] = made.routes  # found out once, however many measurements look at it
        return made

    return at(point, dtype)


def _sum_in_state_type(unit: Unit) -> Callable[[Point, torch.dtype | None], Tensor]:
    """The sum before the tail, computed in the wanted type from the entry: the unit's own activation pattern."""

    def argument(point: Point, dtype: torch.dtype | None) -> Tensor:
        entry = point.entry(unit) if dtype is None else point.entry(unit).to(dtype)
        with torch.no_grad():
            return unit.skip.bound(point)(entry) + unit.branch.bound(point)(entry)

    return argument


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
