"""From a span of the trunk to its Jacobian: which function, at which state, in which floating type, at which positions
of its states (tokens or channels).

What `span.jacobian(x, ...)` calls; `jacobian` has the operator itself. Between chosen tokens only their own path is
differentiated, where that is the same (`token_route`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.derivative import Routes
from skipscope.linear.jacobian import Jacobian
from skipscope.linear.law import known_spectrum
from skipscope.linear.operator import Operator, Product
from skipscope.linear.positions import Pair, Tokens, restricted, restricted_channels
from skipscope.linear.token_route import WHOLE_SEQUENCE, token_route
from skipscope.trace.tokens.path import TokenPath
from skipscope.trace.trunk import Function, Part, Path, Point, Span, Unit

State = Callable[[Point, torch.dtype | None], Tensor]  # at a point, in a floating type


def jacobian(
    span: Span,
    x: Any,
    *,
    of: Part = "unit",
    tail: bool = False,
    tokens: Pair | None = None,
    channels: Pair | None = None,
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
    after = span.tail if tail and isinstance(span, Unit) and span.tail else None
    follow = _Followed.of(path, after, span, point, tokens)
    first = _linearised(path, span.batch_axis, point, dtype, tokens=follow.tokens, made=follow.path, route=follow.route)
    operator: Operator = first
    if after is not None:
        assert isinstance(span, Unit), "a tail is a unit's"
        at_exit = None if follow.tokens is None else follow.tokens.at_exit
        argument = _sum_in_state_type(span)
        operator = Product((_linearised(after, first.exit_axis, point, dtype, argument, tokens=at_exit), first))
    if follow.tokens is not None:
        return restricted_channels(operator, span, follow.tokens, channels)
    return restricted(operator, span, tokens=tokens, channels=channels)


@dataclass(frozen=True)
class _Followed:
    """The tokens, where the path and the tail after it can be followed for them alone; the route that is taken; and the
    path, where it was just made."""

    tokens: Tokens | None = None
    route: str | None = None
    path: TokenPath | None = None

    @classmethod
    def of(cls, path: Function, after: Path | None, span: Span, point: Point, pair: Pair | None) -> _Followed:
        if pair is None:
            return cls()
        tokens = Tokens.of(span, pair)
        route, made = token_route(path, span.batch_axis, point, tokens)
        if after is not None and not route.startswith(WHOLE_SEQUENCE):
            axis = span.batch_axis if path.exit_axis is None else path.exit_axis
            of_tail, _ = token_route(after, axis, point, tokens.at_exit)
            route = of_tail if of_tail.startswith(WHOLE_SEQUENCE) else max(route, of_tail, key=len)
        return cls(None, route) if route.startswith(WHOLE_SEQUENCE) else cls(tokens, route, made)


def _linearised(
    function: Function,
    axis: int,
    point: Point,
    dtype: torch.dtype | None,
    argument: State | None = None,
    *,
    tokens: Tokens | None = None,
    made: TokenPath | None = None,
    route: str | None = None,
) -> Jacobian:
    """argument: the function's own, converted, by default. tokens: that are followed alone; made: their path at the
    point, where there is one. route: what the operator says of its tokens."""
    whole = function if isinstance(function, Span) and tokens is None else None

    def state_in(some: Point, type_: torch.dtype | None) -> Tensor:
        if argument is not None:
            return argument(some, type_)
        state = function.argument(some)
        return state if type_ is None else state.to(type_)

    def at(
        some: Point, type_: torch.dtype | None, routes: Routes | None = None, path: TokenPath | None = None
    ) -> Jacobian:
        state = state_in(some, type_) if tokens is None else tokens.entry_rows(state_in(some, type_), axis)
        own = state.dtype

        # Nothing here holds the Jacobian itself: with its recorded graphs it is freed as soon as nobody uses it.
        def in_other_form(samples: Sequence[int] | None, other: torch.dtype) -> Jacobian | None:
            part = some if samples is None else some.take(samples)
            if part is None or (other != own and not function.in_any_type):
                return None
            return at(part, other, some.remembered[function, tokens])

        found = Jacobian(
            _bound(function, some, tokens, path),
            state,
            axis,
            name=function.name,
            in_other_form=in_other_form,
            first_not_finite=some.first_not_finite,
            known_spectrum=None if whole is None else partial(known_spectrum, whole, some),
            exit_axis=function.exit_axis,
            routes=routes or some.remembered.get((function, tokens)),
        )
        found.token_route = route
        some.remembered[function, tokens] = found.routes  # found out once, however many measurements look at it
        return found

    return at(point, dtype, path=made)


def _bound(
    function: Function, point: Point, tokens: Tokens | None, path: TokenPath | None
) -> Callable[[Tensor], Tensor]:
    if tokens is None:
        return function.bound(point)
    found = path or function.at_tokens(point, tokens.entries, tokens.exits)
    assert not isinstance(found, str), "tokens are followed alone only where that was seen to be possible"
    return found.bound()


def _sum_in_state_type(unit: Unit) -> State:
    """The sum before the tail, computed in the wanted type from the entry: the unit's own activation pattern."""

    def argument(point: Point, dtype: torch.dtype | None) -> Tensor:
        entry = point.entry(unit) if dtype is None else point.entry(unit).to(dtype)
        with torch.no_grad():
            return unit.skip.bound(point)(entry) + unit.branch.bound(point)(entry)

    return argument
