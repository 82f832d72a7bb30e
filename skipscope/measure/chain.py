"""A trunk as a chain: functions of one state, one after another, from the entry of its first unit to the output.

Measurements that carry a changed state to the end of a model, or a cotangent back through it, need this form: links
(units, and what lies between them) of which each starts where the last one ended, and a head, which makes the model's
output of the last state. A model that reads an earlier state again (a U-Net, a decoder that looks at its encoder) has
no such form: a change of a state would travel along a second path, which a chain does not see. It is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError, TraceError
from skipscope.measure.selection import PRODUCTS, exit_axis
from skipscope.numerics import measuring
from skipscope.trace import Point, Span, Trunk, Unit
from skipscope.trace.graph_trunk import GraphSegment, GraphSpan, GraphTrunk
from skipscope.trace.operations import display

Function = Callable[[Tensor], Tensor]
RETURNS_STATE = "the model returns its last state"
CAUSAL_WITHIN = 1e-4  # of the change that a token makes at its own position: what rounding may do to earlier ones


@dataclass(frozen=True)
class Link:
    span: Span
    unit: Unit | None  # None for what lies between two units

    @property
    def name(self) -> str:
        return self.span.name


@dataclass(frozen=True)
class Chain:
    """The links and the head of a trunk; `at` binds them to a point."""

    links: Sequence[Link]
    head: Span | None
    why_no_head: str = ""

    def place(self, unit: Unit) -> int:
        for place, link in enumerate(self.links):
            if link.unit is not None and link.unit.index == unit.index:
                return place
        inside = f"lies inside {unit.parent.name}" if unit.parent is not None else "is not part of it"
        raise InputError(f"{unit.name} {inside}: expected units that follow one another; leave it out of units=")

    def at(self, point: Point) -> ChainAt:
        head = None if self.head is None else self.head.bound(point)
        return ChainAt(self, [link.span.bound(point) for link in self.links], head, self.links[0].span.argument(point))


@dataclass(frozen=True)
class ChainAt:
    """A chain with the context of a point."""

    chain: Chain
    functions: Sequence[Function]
    head: Function | None
    first: Tensor  # the entry of the first link

    def states(self, dtype: torch.dtype | None = None) -> list[Tensor]:
        """The entry of every link, then the last exit; in another floating type, all computed in it."""
        states = [self.first.detach() if dtype is None else self.first.detach().to(dtype)]
        with torch.no_grad(), measuring():
            for function in self.functions:
                states.append(function(states[-1]))
        return states

    def end(self, state: Tensor, place: int) -> Tensor:
        """What a state before the link of that place becomes after the last link."""
        with torch.no_grad(), measuring():
            for function in self.functions[place:]:
                state = function(state)
        return state

    def output(self, state: Tensor) -> Tensor:
        """What the head makes of a last state."""
        assert self.head is not None
        with torch.no_grad(), measuring():
            return self.head(state)

    def causal(self) -> bool:
        """Does no position of the last state depend on a later one? Seen by a change of the last position."""
        before, axis = self.first.detach(), self.chain.links[0].span.batch_axis
        token_axis = 1 if axis == 0 else 0
        has_tokens = before.dim() == 3 or has_streams([self.chain.links[0].span])
        if not has_tokens or before.shape[token_axis] < 2:
            return False
        after = before.clone()
        last = after.select(token_axis, -1)
        last.copy_(last.flip(-1) + last.abs().mean())
        change = (self.end(after, 0) - self.end(before, 0)).double()
        earlier = change.narrow(token_axis, 0, before.shape[token_axis] - 1)
        return bool(earlier.abs().max() <= CAUSAL_WITHIN * change.abs().max())


def chain_of(trunk: Trunk, point: Point) -> Chain:
    """The chain of a trunk; an InputError says why there is none."""
    if not trunk.units:
        raise InputError(f"{type(trunk.model).__name__} has no residual units to measure")
    return _of_graph(trunk) if isinstance(trunk, GraphTrunk) else _of_modules(trunk, point)


def _of_graph(trunk: GraphTrunk) -> Chain:
    links: list[Link] = []
    head, why = None, RETURNS_STATE
    segments = [segment for segment in trunk.segments if segment.kind != "stem"]
    for segment in segments:
        if segment.kind == "head":
            head, why = _head(segment, links)
            continue
        span: GraphSpan = trunk.units[trunk[segment.name].index] if segment.kind == "unit" else segment
        _check_follows(trunk, span, links)
        links.append(Link(span, span if isinstance(span, Unit) else None))
    return Chain(links, head, why)


def _check_follows(trunk: GraphTrunk, span: GraphSpan, links: Sequence[Link]) -> None:
    try:
        entry = span.entry
    except TraceError as error:
        raise InputError(f"the units of {_model(trunk)} do not form a chain of states: {error}") from error
    if not links:
        return
    before, first = links[-1].span, links[0].span
    assert isinstance(before, GraphSpan)
    assert isinstance(first, GraphSpan)
    if entry is not before.exit:
        raise InputError(
            f"the units of {_model(trunk)} do not form a chain of states: {span.name} does not start where "
            f"{before.name} ends"
        )
    flow = trunk.structure.flow
    for node in span.piece.context:
        if flow.reads[node] & flow.bit(first.entry):
            raise InputError(
                f"the units of {_model(trunk)} do not form a chain of states: {span.name} also reads an earlier state "
                f"({trunk.structure.origin(node)})"
            )


def _head(segment: GraphSegment, links: Sequence[Link]) -> tuple[Span | None, str]:
    """What makes the output of the last state, or why nothing does."""
    try:
        _check_follows(segment.trunk, segment, links)
    except InputError:
        return None, "what the model returns is not made of its last state alone"
    return segment, ""


def _of_modules(trunk: Trunk, point: Point) -> Chain:
    """Of units that the user named: they follow one another where one's exit is the next one's entry."""
    for before, after in zip(trunk.units, trunk.units[1:], strict=False):
        if not torch.equal(point.exit(before), point.entry(after)):
            raise InputError(
                f"the units of {_model(trunk)} do not form a chain of states: {after.name} does not start where "
                f"{before.name} ends"
            )
    return Chain([Link(unit, unit) for unit in trunk.units], None, "units were named, and the code after is not known")


def _model(trunk: Trunk) -> str:
    return type(trunk.model).__name__


# -- states of tokens


def tokens_of(units: Sequence[Unit]) -> int | None:
    """The number of positions, where all entries and exits are states of shape (tokens, channels); else None."""
    shapes = [shape for unit in units for shape in (unit.entry_shape, unit.exit_shape)]
    if any(len(shape) != 2 for shape in shapes) or len({shape[0] for shape in shapes}) != 1:
        return None
    return shapes[0][0]


def tokens_of_streams(chain: Chain | None, units: Sequence[Unit]) -> int | None:
    """The number of positions of states (tokens, streams, channels): where the head makes a row of each; else None."""
    shapes = {shape for unit in units for shape in (unit.entry_shape, unit.exit_shape)}
    if chain is None or chain.head is None or len(shapes) != 1 or not has_streams(units):
        return None
    (shape,), made = shapes, chain.head.exit_shape
    return shape[0] if len(shape) == 3 and len(made) == 2 and made[0] == shape[0] else None


def has_streams(spans: Sequence[Span]) -> bool:
    """Does a skip mix several streams? Then a state of three axes is no image."""
    return any(isinstance(span, Unit) and span.kind == "streams" for span in spans)


def require_tokens(trunk: Trunk, units: Sequence[Unit], measure: str) -> tuple[int, int]:
    """(tokens, channels) of all states."""
    for unit in units:
        for shape in (unit.entry_shape, unit.exit_shape):
            if len(shape) != 2 or shape != units[0].entry_shape:
                raise InputError(
                    f"ss.{measure} needs states of one shape (tokens, channels), as in a transformer; {unit.name} of "
                    f"{_model(trunk)} has states {unit.entry_shape} -> {unit.exit_shape}; choose others with units="
                )
    tokens, channels = units[0].entry_shape
    return tokens, channels


def positions_of(tokens: int, chosen: Sequence[int] | slice | int | None) -> list[int]:
    """Which positions, from 0: an index, a list, a slice, or None for all."""
    everything = list(range(tokens))
    if chosen is None:
        return everything
    try:
        if isinstance(chosen, slice):
            found = everything[chosen]
        else:
            found = [everything[one] for one in ([chosen] if isinstance(chosen, int) else chosen)]
    except (IndexError, TypeError) as error:
        raise InputError(f"tokens={chosen!r}: expected positions below {tokens}, a slice or None") from error
    if not found or len(set(found)) < len(found):
        raise InputError(f"tokens={chosen!r}: expected at least one of {tokens} positions, each once")
    return found


def by_position(state: Tensor, axis: int, tokens: int | None) -> Tensor:
    """(B, T, d) in float64, d of all streams of a position; without tokens the whole state of a sample is one position:
    (B, 1, n)."""
    whole = state.detach().movedim(axis, 0).double()
    return whole.flatten(2) if tokens is not None else whole.flatten(1)[:, None]


def exit_of(point: Point, unit: Unit) -> tuple[Tensor, int]:
    """The exit of a unit and its axis of samples."""
    return point.exit(unit), exit_axis(unit, unit)


def makes_logits(head: Span, width: int) -> bool:
    """Does a head end in scores of classes? It multiplies by a matrix, and they are not as many as the channels."""
    assert isinstance(head, GraphSegment)
    multiplies = any(display(node) in PRODUCTS for node in head.nodes)
    return multiplies and len(head.exit_shape) in (1, 2) and head.exit_shape[-1] not in (1, width)
