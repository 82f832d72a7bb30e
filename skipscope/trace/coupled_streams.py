"""Two streams that are added to in turns: y1 = x1 + F(x2), y2 = x2 + G(y1), as in reversible networks.

Neither sum has a state of its own in it: its skip and its branch start from different tensors. The state is the pair of
them. Each sum of such a coupling is rewritten as a residual sum of the joined state,

    E = (x1, x2)    E' = E + (F(x2), 0)    y1, x2 = E'

so that it is a unit like others, with the exact Jacobian of the pair. Where the next sum goes on from the same pair,
its state is E' itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Flow
from skipscope.trace.graph_edits import new_node, replace_node, same_tensor, zeros_like
from skipscope.trace.program import Program

aten = torch.ops.aten
END = 2**63 - 1  # of an axis, in a slice


@dataclass(frozen=True)
class _Turn:
    """One sum of a coupling: total = stream + change, where the change is computed from the other stream alone."""

    total: fx.Node
    stream: fx.Node
    change: fx.Node
    other: fx.Node
    inside: frozenset[fx.Node]  # what is computed for the change alone


def join_streams(program: Program) -> bool:
    """Whether there were any."""
    joining = _Joining(program)
    turns = joining.turns()
    for turn in turns:
        joining.rewrite(turn)
    if turns:
        program.graph.eliminate_dead_code()
        program.graph.lint()
        program.refresh()
    return bool(turns)


class _Joining:
    def __init__(self, program: Program) -> None:
        self._program, self._graph = program, program.graph
        self._position = {node: i for i, node in enumerate(self._graph.nodes)}
        self._moving = self._from_inputs()
        self._joined: dict[fx.Node, tuple[fx.Node, int]] = {}  # a stream: the joined state, and which part of it
        self._now: dict[fx.Node, fx.Node] = {}  # what became of a node that was replaced

    def _from_inputs(self) -> set[fx.Node]:
        found = set(self._program.inputs)
        for node in self._program.nodes:
            if any(argument in found for argument in node.all_input_nodes):
                found.add(node)
        return found

    @cached_property
    def _paths(self) -> Mapping[fx.Node, Any]:
        return Flow(self._program).predecessors

    # -- which sums

    def turns(self) -> list[_Turn]:
        possible = [turn for node in self._program.nodes if (turn := self._turn(node)) is not None]
        by_ends = {(turn.stream, turn.other): turn for turn in possible}
        kept: dict[fx.Node, _Turn] = {}
        for turn in possible:
            answer = by_ends.get((turn.other, turn.total))
            if answer is not None:
                kept[turn.total], kept[answer.total] = turn, answer
            elif any(set(user.all_input_nodes) == {turn.total, turn.other} for user in self._joins(turn)):
                kept[turn.total] = turn
        return sorted(kept.values(), key=lambda turn: self._position[turn.total])

    def _joins(self, turn: _Turn) -> list[fx.Node]:
        """Concatenations that put the two streams together again."""
        return [user for user in turn.total.users if operations.name(user) == "cat"]

    def _turn(self, node: fx.Node) -> _Turn | None:
        if operations.name(node) not in ("add", "sub") or node.kwargs or not self._is_state(node):
            return None
        for stream, change in (node.args[:2], node.args[1::-1]):
            if operations.name(node) == "sub" and stream is not node.args[0]:
                continue
            if not isinstance(stream, fx.Node) or not isinstance(change, fx.Node) or not same_tensor(change, node):
                continue
            if not self._is_state(stream) or not same_tensor(stream, node) or len(change.users) > 1:
                continue
            inside = self._alone_for(change)
            read = {n for member in inside for n in member.all_input_nodes if n in self._moving and n not in inside}
            others = {n for n in read if self._is_float(n)}
            if len(others) > 1 and stream not in others:
                others &= self._paths.keys()  # not the masks of a model
            if len(others) != 1 or stream in others or not any(operations.kind(n) == "mix" for n in inside):
                continue
            (other,) = others
            later = [user for user in stream.users if self._position[user] > self._position[node]]
            if self._is_state(other) and not later:
                return _Turn(node, stream, change, other, frozenset(inside))
        return None

    def _is_float(self, node: fx.Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, Tensor) and value.is_floating_point()

    def _is_state(self, node: fx.Node) -> bool:
        return self._is_float(node) and self._program.batch_axis(node) == 0

    def _alone_for(self, change: fx.Node) -> set[fx.Node]:
        """The nodes that nothing but the change is computed from."""
        found, waiting = {change}, [change]
        while waiting:
            for argument in waiting.pop().all_input_nodes:
                alone = argument.op == "call_function" and all(user in found for user in argument.users)
                if alone and argument in self._moving and argument not in found:
                    found.add(argument)
                    waiting.append(argument)
        return found

    # -- rewriting

    def rewrite(self, turn: _Turn) -> None:
        graph, total = self._graph, turn.total
        stream, other = (self._now.get(node, node) for node in (turn.stream, turn.other))
        with graph.inserting_before(self._first(turn, stream)):
            state, own = self._state(total, stream, other)
            read = self._part(total, state, 1 - own, other)
        for member in turn.inside:
            member.replace_input_with(other, read)
        with graph.inserting_before(total):
            change, beside = self._flat(total, turn.change), zeros_like(graph, total, self._flat(total, other))
            # Not a padding, whose shape rule takes the batch for a fixed number.
            both = [change, beside] if own == 0 else [beside, change]
            padded = new_node(graph, total, aten.cat.default, both, 1)
            end = new_node(graph, total, total.target, state, padded)
            new, same = self._part(total, end, own, stream), self._part(total, end, 1 - own, other)
        after = [user for user in other.users if user not in turn.inside and total < user]
        for user in after:
            user.replace_input_with(other, same)
        self._now.update({turn.total: new, turn.other: same})
        self._joined.update({new: (end, own), same: (end, 1 - own)})
        replace_node(graph, total, new)

    def _first(self, turn: _Turn, stream: fx.Node) -> fx.Node:
        """The first node of the change; the state stands before it, so that the stream must be there as well."""
        first = next(node for node in self._graph.nodes if node in turn.inside)
        if first < stream:
            for member in [node for node in self._graph.nodes if node in turn.inside]:
                turn.total.prepend(member)  # nothing else reads what is inside: it may wait until then
        return next(node for node in self._graph.nodes if node in turn.inside)

    def _state(self, like: fx.Node, stream: fx.Node, other: fx.Node) -> tuple[fx.Node, int]:
        """The joined state, and which part of it the stream is."""
        if stream in self._joined and other in self._joined and self._joined[stream][0] is self._joined[other][0]:
            return self._joined[stream]
        both = [self._flat(like, node) for node in (stream, other)]
        return new_node(self._graph, like, aten.cat.default, both, 1), 0

    def _flat(self, like: fx.Node, node: fx.Node) -> fx.Node:
        return new_node(self._graph, like, aten.reshape.default, node, [-1, _entries(node)])

    def _part(self, like: fx.Node, state: fx.Node, part: int, as_: fx.Node) -> fx.Node:
        """One of the two streams of a joined state, in the shape of the stream as it was."""
        size = _entries(as_)
        total = int(state.meta["val"].shape[1])
        start, end = (0, size) if part == 0 else (total - size, END)
        some = new_node(self._graph, like, aten.slice.Tensor, state, 1, start, end)
        shape = [-1, *(int(length) for length in as_.meta["val"].shape[1:])]
        return new_node(self._graph, like, aten.reshape.default, some, shape)


def _entries(node: fx.Node) -> int:
    """Of one sample."""
    return prod(int(length) for length in node.meta["val"].shape[1:])
