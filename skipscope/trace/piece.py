"""A piece of a program as a function of one tensor: from the value at one node to the value at another.

Whatever the piece needs in addition to its entry and does not compute from weights alone is its context: values at
other nodes, taken from a point. A branch is the same piece as its unit with the skip's term read as zero in
the sum, and the skip is the piece with the branch's terms read as zero, so signs, factors and alphas of a sum need no
special case and the two add up to the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

from torch import Tensor, fx

from skipscope.errors import InputError, TraceError
from skipscope.numerics import measuring
from skipscope.trace.flow import Flow
from skipscope.trace.freshness import WhileFresh
from skipscope.trace.graph_point import OF_ANOTHER, GraphPoint
from skipscope.trace.program import Program, in_type, last_uses
from skipscope.trace.tokens.path import TokenPath
from skipscope.trace.tokens.plan import Plan, RefusedError, Sizes, token_axis
from skipscope.trace.tokens.rules import planned
from skipscope.trace.trunk import Point

Zeros = Mapping[fx.Node, frozenset[fx.Node]]


class Piece:
    def __init__(
        self,
        program: Program,
        flow: Flow,
        name: str,
        entry: fx.Node,
        exit: fx.Node,
        *,
        own: Collection[fx.Node] = (),
        zero: Zeros | None = None,
        needed: tuple[list[fx.Node], list[fx.Node]] | None = None,
    ) -> None:
        """needed: the nodes and the context, where they are known."""
        self.program, self.name, self.entry, self.exit = program, name, entry, exit
        self.zero = dict(zero or {})
        self.axis, self.exit_axis = program.batch_axis(entry), program.batch_axis(exit)
        self.nodes, self.context = self._needed(flow, own) if needed is None else needed
        self._drop = last_uses(self.nodes, {exit, *self.context})
        self._largest: dict[int, int] = {}
        self._plans: dict[tuple[int, Sizes], Plan | str] = {}

    def _needed(self, flow: Flow, own: Collection[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
        """What must run to get from entry to exit, in order, and the values that must come from a point.

        own: nodes to run although they do not depend on the entry: what a unit makes of its context.
        """
        entry = flow.bit(self.entry)
        computed: set[fx.Node] = set()
        context: set[fx.Node] = set()
        waiting = [self.exit]
        while waiting:
            node = waiting.pop()
            if node is self.entry or node in computed or node in context or self.program.is_free(node):
                continue
            from_entry = bool(flow.reads[node] & entry)
            if not from_entry and node in flow.from_inputs and node not in own:
                context.add(node)
            elif node.op != "placeholder":
                computed.add(node)
                hidden = self.zero.get(node, frozenset())
                waiting += [argument for argument in flow.arguments[node] if argument not in hidden]
        return sorted(computed, key=flow.position.__getitem__), sorted(context, key=flow.position.__getitem__)

    def __call__(self, state: Tensor, point: GraphPoint | None = None) -> Tensor:
        """The piece at `state`, in the state's own floating type; a context, if it has one, is taken from `point`."""
        batch = self._check(state)
        values = {self.entry: state}
        if self.context:
            if point is None:
                raise TraceError(f"{self.name} needs a context: call trunk.at(x) first, or pass a point")
            if point.batch != batch:
                raise InputError(
                    f"{self.name} has a context, which the last point holds for a batch of {point.batch}, but the "
                    f"state has {batch}; call trunk.at(x) with the batch that this state belongs to"
                )
            context = point.values(self.context)
            values.update({node: in_type(value, state.dtype) for node, value in context.items()})
        with measuring():
            self.program.run(self.nodes, values, batch, drop=self._drop, zero=self.zero, dtype=state.dtype)
        return values[self.exit]

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        own = self._own(point)
        used = {node for one in self.nodes for node in one.all_input_nodes}
        weights = sum(weight.numel() for node in used if (weight := self.program.parameter(node)) is not None)
        return WhileFresh(lambda state: self(state, own), own.seen, weights, lambda: self.largest(own.batch))

    def largest(self, batch: int) -> int:
        """How many numbers the largest value has that is computed on the way."""
        if batch not in self._largest:
            tensors = [node for node in self.nodes if isinstance(node.meta.get("val"), Tensor)]
            self._largest[batch] = max((prod(self.program.shape(node, batch)) for node in tensors), default=0)
        return self._largest[batch]

    def argument(self, point: Point) -> Tensor:
        return self._own(point).value(self.entry)

    def at_tokens(self, point: Point, entries: Sequence[int], exits: Sequence[int]) -> TokenPath | str:
        """The way of some tokens alone, at a point; or why that takes the whole sequence."""
        own = self._own(point)
        try:
            return TokenPath(self, own, entries, exits)
        except RefusedError as reason:
            return str(reason)

    def plan(self, batch: int, sizes: Sizes) -> Plan | str:
        """How some tokens are followed alone; or why they cannot be."""
        if (batch, sizes) not in self._plans:
            plan = Plan(self.program, self.entry, self.zero, batch, sizes)
            try:
                found: Plan | str = planned(plan, self.nodes, self.exit, token_axis(self.program, self.exit))
            except RefusedError as reason:
                found = str(reason)
            self._plans[batch, sizes] = found
        return self._plans[batch, sizes]

    def _own(self, point: Point) -> GraphPoint:
        """A point of the same graph on the same model; copies of a trunk share the graph, not the model."""
        graph, model = self.program.graph, self.program.model
        if not isinstance(point, GraphPoint) or point.program.graph is not graph or point.program.model is not model:
            raise TraceError(f"{self.name}: {OF_ANOTHER}")
        return point

    def _check(self, state: Tensor) -> int:
        program, axis = self.program, self.axis
        batch = int(state.shape[axis]) if axis is not None and state.dim() > axis else program.traced_batch
        expected = program.shape(self.entry, batch)
        if tuple(state.shape) != expected:
            free = axis if program.batch_symbol is not None else None
            wanted = ["batch" if i == free else str(size) for i, size in enumerate(expected)]
            raise InputError(f"{self.name}: expected a state of shape ({', '.join(wanted)}), got {tuple(state.shape)}")
        return batch
