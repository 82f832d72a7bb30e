"""A trunk on an exported graph: every unit, branch, skip and span is a piece of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn

from skipscope.errors import TraceError
from skipscope.numerics import measuring
from skipscope.trace import operations
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.leaks import side_outputs
from skipscope.trace.piece import Piece
from skipscope.trace.program import Program
from skipscope.trace.structure import Part, Structure
from skipscope.trace.tokens.path import TokenPath
from skipscope.trace.trunk import Path, Point, Segment, Span, Stage, Trunk, Unit


class GraphSpan(Span):
    """From one node to another."""

    trunk: GraphTrunk
    _ends: tuple[fx.Node, fx.Node] | None

    def __init__(self, trunk: GraphTrunk, name: str, entry: fx.Node, exit: fx.Node) -> None:
        self.trunk, self.name, self._ends = trunk, name, (entry, exit)

    @property
    def entry(self) -> fx.Node:
        return self._entry_and_exit()[0]

    @property
    def exit(self) -> fx.Node:
        return self._entry_and_exit()[1]

    def _entry_and_exit(self) -> tuple[fx.Node, fx.Node]:
        assert self._ends is not None, "only segments may be without ends"
        return self._ends

    @cached_property
    def piece(self) -> Piece:
        return self.trunk.piece(self.name, self.entry, self.exit)

    def value(self, state: Tensor) -> Tensor:
        return self.piece(state, self.trunk.point)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.piece.bound(point)

    def argument(self, point: Point) -> Tensor:
        return self.piece.argument(point)

    def at_tokens(self, point: Point, entries: Sequence[int], exits: Sequence[int]) -> TokenPath | str:
        return self.piece.at_tokens(point, entries, exits)

    @property
    def exit_axis(self) -> int | None:
        return self.piece.exit_axis

    @property
    def batch_axis(self) -> int:
        axis = self.trunk.program.batch_axis(self.entry)
        assert axis is not None, "units without a batch axis are left out of a trunk"
        return axis

    @property
    def entry_shape(self) -> tuple[int, ...]:
        return self.trunk.sample_shape(self.entry)

    @property
    def exit_shape(self) -> tuple[int, ...]:
        return self.trunk.sample_shape(self.exit)


class GraphPath(Path):
    def __init__(self, unit: GraphUnit, what: str, piece: Piece, nodes: Sequence[fx.Node]) -> None:
        self.name, self.unit, self.piece, self.nodes = f"{what} of {unit.name}", unit, piece, list(nodes)
        self.operations = [operations.display(node) for node in nodes if operations.name(node) != "getitem"]

    def value(self, state: Tensor) -> Tensor:
        return self.piece(state, self.unit.trunk.point)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.piece.bound(point)

    def argument(self, point: Point) -> Tensor:
        return self.piece.argument(point)

    def at_tokens(self, point: Point, entries: Sequence[int], exits: Sequence[int]) -> TokenPath | str:
        return self.piece.at_tokens(point, entries, exits)

    @property
    def exit_axis(self) -> int | None:
        return self.piece.exit_axis


class GraphUnit(GraphSpan, Unit):
    def __init__(self, trunk: GraphTrunk, index: int, part: Part) -> None:
        super().__init__(trunk, part.name, part.region.entry, part.exit)
        self.index, self.part = index, part
        self.end = part.region.end
        self.kind = part.region.skip_kind
        self.stage = part.stage
        self.branches = len(set(part.region.terms)) - 1
        self.parameter_names = part.parameter_names

    @cached_property
    def branch(self) -> GraphPath:
        region = self.part.region
        return self._path("branch", {region.skip}, self.trunk.structure.branch_nodes(region))

    @cached_property
    def skip(self) -> GraphPath:
        region = self.part.region
        others = {term for term in region.terms if term is not region.skip}
        return self._path("skip", others, self.trunk.structure.skip_nodes(region))

    @cached_property
    def tail(self) -> GraphPath:
        return GraphPath(self, "tail", self.trunk.piece(f"tail of {self.name}", self.end, self.exit), self.part.tail)

    def _path(self, what: str, zeroed: set[fx.Node], nodes: Sequence[fx.Node]) -> GraphPath:
        zero = {node: frozenset(zeroed & set(node.all_input_nodes)) for node in self.part.region.sums}
        piece = self.trunk.piece(f"{what} of {self.name}", self.entry, self.end, zero)
        return GraphPath(self, what, piece, nodes)

    @property
    def context(self) -> list[str]:
        return [self.trunk.structure.origin(node) for node in self.piece.context]

    @cached_property
    def side_outputs(self) -> list[str]:
        return list(dict.fromkeys(map(self._named, side_outputs(self.trunk.structure.flow, self.part.region))))

    def _named(self, node: fx.Node) -> str:
        """Where a value inside comes from; the name of the unit's own module would say nothing: then the operation."""
        structure = self.trunk.structure
        path = structure.calls.path(node)
        around = path and (self.name == path or self.name.startswith(f"{path}."))
        return f"{operations.display(node)} in {path}" if around else structure.origin(node)

    def mix(self, x: Any) -> Tensor:
        multipliers = self.part.region.multipliers
        if multipliers is None:
            raise TraceError(f"the skip of {self.name} does more than multiply its entry: {self.skip}")
        point = x if isinstance(x, GraphPoint) else self.trunk.at(x)
        values = [self._multiplier(factor, point) for factor in multipliers]
        product = torch.tensor(self.part.region.factor, dtype=point.entry(self).dtype, device=point.entry(self).device)
        for value in values:
            product = product * value
        return product

    def _multiplier(self, factor: Any, point: GraphPoint) -> Any:
        if not isinstance(factor, fx.Node):
            return factor
        # Behind the reshapes that a product of matrices needs are the axes that the model knows.
        while operations.name(factor) in ("reshape", "expand", "flatten") and _same_matrices(factor.args[0], factor):
            factor = factor.args[0]
        name = self.trunk.program.weights.get(factor)
        if name is None:
            return point.value(factor)
        return self.trunk.program.weight(name, device=point.entry(self).device).detach()

    @property
    def parent(self) -> Unit | None:
        return None if self.part.parent is None else self.trunk.units[self.part.parent]


def _same_matrices(a: Any, b: fx.Node) -> bool:
    """Have two tensors the same last two axes?"""
    if not isinstance(a, fx.Node) or not isinstance(a.meta.get("val"), Tensor):
        return False
    return [str(size) for size in a.meta["val"].shape[-2:]] == [str(size) for size in b.meta["val"].shape[-2:]]


class GraphSegment(GraphSpan, Segment):
    def __init__(
        self, trunk: GraphTrunk, kind: str, name: str, nodes: list[fx.Node], entry: fx.Node | None, exit: fx.Node | None
    ) -> None:
        self.trunk, self.name, self.kind, self.nodes = trunk, name, kind, nodes
        self._ends = (entry, exit) if entry is not None and exit is not None and trunk.reaches(entry, exit) else None

    def _entry_and_exit(self) -> tuple[fx.Node, fx.Node]:
        if self._ends is None:
            raise TraceError(
                f"the {self.kind} {self.name} is not a function of one state: it starts at inputs that are no float "
                "tensors, or it does not continue the state before it; use trunk.replay(x) or trunk.at(x)"
            )
        return self._ends

    def __repr__(self) -> str:
        return f"<Segment {self.name}: {self.kind} of {len(self.nodes)} operations>"


class GraphTrunk(Trunk):
    point: GraphPoint | None = None
    units: list[GraphUnit]
    segments: list[GraphSegment]

    def __init__(self, structure: Structure, axis: int, notes: Sequence[str], dtype: torch.dtype | None) -> None:
        super().__init__(axis, notes, dtype)
        self.structure, self.program = structure, structure.program
        self.model = self.program.model
        self.left_out = structure.left_out
        self.units = [GraphUnit(self, i, part) for i, part in enumerate(structure.parts)]
        self.stages = [Stage(self, i, [self.units[k] for k in run]) for i, run in enumerate(structure.stages)]
        self.segments = [GraphSegment(self, *segment) for segment in structure.segments()]

    def at(self, x: Any) -> GraphPoint:
        inputs = self.inputs(x)
        self.point = GraphPoint(self.structure, self.program.bind(inputs.args, inputs.kwargs), self.units)
        return self.point

    def replay(self, x: Any, *, in_training: Collection[fx.Node] = ()) -> Any:
        """All segments one after another. in_training: batch norms that have the statistics of the batch."""
        inputs = self.inputs(x)
        values = self.program.bind(inputs.args, inputs.kwargs)
        batch = self.program.batch_of(values)
        with measuring():
            for segment in self.segments:
                self.program.run(segment.nodes, values, batch, in_training=in_training)
        return self.program.unflatten(values, batch)

    def span(self, first: int | str | Unit, last: int | str | Unit) -> GraphSpan:
        a, b = self[first], self[last]
        assert isinstance(a, GraphUnit)
        assert isinstance(b, GraphUnit)
        if not self.reaches(a.entry, b.exit):
            raise TraceError(
                f"the exit of {b.name} does not depend on the entry of {a.name}; name the earlier unit first"
            )
        return GraphSpan(self, f"{a.name} to {b.name}", a.entry, b.exit)

    def programs(self) -> list[Program]:
        return [self.program]

    @contextmanager
    def runnable(self, x: Any) -> Iterator[nn.Module]:
        reading = self.program.reading
        device = self.inputs(x).tensors()[0].device
        with nullcontext() if reading is None else reading.in_place(device):
            yield self.model

    def piece(self, name: str, entry: fx.Node, exit: fx.Node, zero: Any = None) -> Piece:
        structure = self.structure
        needed = structure.needed.get((entry, exit)) if zero is None else None
        return Piece(self.program, structure.flow, name, entry, exit, own=structure.own, zero=zero, needed=needed)

    def reaches(self, entry: fx.Node, exit: fx.Node) -> bool:
        flow = self.structure.flow
        return entry is exit or bool(flow.reads[exit] & flow.bit(entry))

    def sample_shape(self, node: fx.Node) -> tuple[int, ...]:
        axis = self.program.batch_axis(node)
        shape = self.program.shape(node, self.program.traced_batch)
        return tuple(size for i, size in enumerate(shape) if i != axis)
