"""Two streams of which one is added to by a function of the other.

    y1 = x1 + F(x2), y2 = x2 + G(y1)       in turns: reversible networks
    cat([x1 s(x2) + F(x2), x2])            one half: affine couplings of normalising flows
    x + F(p), ..., x' + F'(p'), ...        again and again, while both go on: patches and their pixels

Neither sum has a state of its own in it: its skip and its branch start from different tensors. The state is the pair of
them. Each such sum is rewritten as a residual sum of the joined state,

    E = (x1, x2)    E' = E + (F(x2), 0)    or    E' = (s(x2), 1) E + (F(x2), 0)    y1, x2 = E'

so that it is a unit like others, with the exact Jacobian of the pair. Where the next sum goes on from the same pair,
its state is E' itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Flow
from skipscope.trace.graph_edits import OURS, filled_like, new_node, replace_node, same_tensor, zeros_like
from skipscope.trace.program import Program

aten = torch.ops.aten
END = 2**63 - 1  # of an axis, in a slice


@dataclass(frozen=True)
class _Turn:
    """One sum of a coupling: total = stream + change, or stream scale + change, where the change and the scale are
    computed from the other stream alone."""

    total: fx.Node
    stream: fx.Node
    change: fx.Node
    scale: fx.Node | None
    other: fx.Node
    read: fx.Node  # the other stream, or a reshape of it that folds the batch into another axis
    inside: frozenset[fx.Node]  # what is computed for the change and the scale alone


def join_streams(program: Program) -> bool:
    """Whether there were any."""
    joining = _Joining(program)
    turns = joining.turns()
    for turn in turns:
        joining.rewrite(turn)
    if turns:
        program.graph.eliminate_dead_code()
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
    def _flow(self) -> Flow:
        return Flow(self._program)

    # -- which sums

    def turns(self) -> list[_Turn]:
        possible = [turn for node in self._program.nodes if (turn := self._turn(node)) is not None]
        by_ends = {(turn.stream, turn.other): turn for turn in possible if turn.scale is None}
        kept: dict[fx.Node, _Turn] = {}
        for turn in possible:
            answer = by_ends.get((turn.other, turn.total)) if turn.scale is None else None
            if answer is not None:
                kept[turn.total], kept[answer.total] = turn, answer
            elif any(set(user.all_input_nodes) == {turn.total, turn.other} for user in self._joins(turn)):
                kept[turn.total] = turn
        kept.update(self._one_sided([node for node in self._program.nodes if node not in kept]))
        return sorted(kept.values(), key=lambda turn: self._position[turn.total])

    def _one_sided(self, nodes: Sequence[fx.Node]) -> dict[fx.Node, _Turn]:
        """Sums by which one stream gets something of the other again and again."""
        found = [turn for node in nodes if (turn := self._turn(node, from_sum=True)) is not None]
        possible = [turn for turn in found if turn.scale is None and not self._is_partial(turn.total)]
        pairs = [(a, b) for a in possible for b in possible if a is not b and self._again(a, b)]
        return {turn.total: turn for pair in pairs for turn in pair}

    def _is_partial(self, node: fx.Node) -> bool:
        """Is a sum added to once more, or one of its terms a sum that is used by it alone and is no residual one?"""
        added = [user for user in node.users if operations.name(user) in ("add", "sub")]
        return (len(node.users) == 1 and bool(added)) or any(
            len(term.users) == 1 and operations.name(term) in ("add", "sub") and self._adds_strangers(term)
            for term in node.all_input_nodes
        )

    def _adds_strangers(self, total: fx.Node) -> bool:
        """Does neither of two terms come from the other?"""
        terms = [node for node in total.all_input_nodes if self._flow.on_path(node)]
        return len(terms) == 2 and not self._comes_from(*terms) and not self._comes_from(*terms[::-1])

    def _comes_from(self, node: fx.Node, source: fx.Node) -> bool:
        return bool(self._flow.ancestors[node] & self._flow.bit(source))

    def _again(self, first: _Turn, second: _Turn) -> bool:
        """Do both streams of one sum go on, each by itself, to those of another? A sum that is only collected does not
        go on, and a context (the time of a diffusion model) stays what it is."""
        flow = self._flow
        if not all(flow.on_path(node) for turn in (first, second) for node in (turn.total, turn.stream, turn.other)):
            return False
        apart = not self._comes_from(second.other, first.stream)
        return apart and self._go_on(first.total, second.stream) and self._go_on(first.other, second.other)

    def _go_on(self, start: fx.Node, end: fx.Node) -> bool:
        """Is something added to a state between these two, and nothing else done to it than norms and activations?"""
        between = self._flow.between(start, end)
        if not any(operations.kind(node) == "mix" for node in self._flow.unmask(between)):
            return False
        waiting, seen = [end], {end}
        while waiting and start not in seen:
            node = waiting.pop()
            before = [argument for argument in self._flow.predecessors[node] if argument not in seen]
            adds = operations.name(node) in ("add", "sub")
            if adds or (len(before) == 1 and operations.kind(node) in ("layout", "norm", "pointwise")):
                seen.update(before)
                waiting += before
        return start in seen

    def _joins(self, turn: _Turn) -> list[fx.Node]:
        """Concatenations that put the two streams together again."""
        return [user for user in turn.total.users if operations.name(user) == "cat"]

    def _turn(self, node: fx.Node, from_sum: bool = False) -> _Turn | None:
        """from_sum: the other stream is the last sum that the change is computed from."""
        if operations.name(node) not in ("add", "sub") or node.kwargs or not self._is_state(node):
            return None
        for first, change in (node.args[:2], node.args[1::-1]):
            if operations.name(node) == "sub" and first is not node.args[0]:
                continue
            if not same_tensor(change, node) or len(change.users) > 1:  # type: ignore[union-attr]
                continue
            for stream, scale in self._factors(first):
                if (turn := self._possible(node, stream, change, scale, from_sum)) is not None:  # type: ignore[arg-type]
                    return turn
        return None

    def _factors(self, first: Any) -> Iterator[tuple[fx.Node, fx.Node | None]]:
        """The stream, and what it is multiplied by."""
        if not isinstance(first, fx.Node):
            return
        yield first, None
        if operations.name(first) == "mul" and len(first.users) == 1:
            for stream, scale in (first.args, first.args[::-1]):
                if same_tensor(stream, first) and same_tensor(scale, first):
                    yield stream, scale  # type: ignore[misc]

    def _possible(
        self, node: fx.Node, stream: fx.Node, change: fx.Node, scale: fx.Node | None, from_sum: bool
    ) -> _Turn | None:
        if not self._is_state(stream) or not same_tensor(stream, node):
            return None
        if (inside := self._alone_for([change] if scale is None else [change, scale], stream, from_sum)) is None:
            return None
        read = {n for member in inside for n in member.all_input_nodes if n in self._moving and n not in inside}
        others = {n for n in read if self._is_float(n)}
        if len(others) > 1 and stream not in others:
            others &= self._flow.predecessors.keys()  # not the masks of a model
        if len(others) != 1 or stream in others or not any(operations.kind(n) == "mix" for n in inside):
            return None
        (seen,) = others
        is_reshaped = not self._is_state(seen) and operations.name(seen) == "reshape"
        other: Any = seen.args[0] if is_reshaped else seen
        own = node if scale is None else next(iter(scale.users))  # the product with the scale is no later use
        later = [user for user in stream.users if self._position[user] > self._position[node] and user is not own]
        if not self._is_state(other) or other is stream or later:
            return None
        return _Turn(node, stream, change, scale, other, seen, frozenset(inside))

    def _is_float(self, node: fx.Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, Tensor) and value.is_floating_point()

    def _is_state(self, node: fx.Node) -> bool:
        return self._is_float(node) and self._program.batch_axis(node) == 0

    def _alone_for(self, computed: Sequence[fx.Node], stream: fx.Node, from_sum: bool) -> set[fx.Node] | None:
        """The nodes that nothing but the change, and the scale, is computed from; from_sum: after the last sums. None
        where they read the stream itself."""
        found, waiting = set(computed), [*computed]
        while waiting:
            for argument in waiting.pop().all_input_nodes:
                if argument is stream and stream not in computed:
                    return None
                alone = argument.op == "call_function" and all(user in found for user in argument.users)
                alone = alone and not (from_sum and self._adds_states(argument))
                if alone and argument in self._moving and argument not in found:
                    found.add(argument)
                    waiting.append(argument)
        return found

    def _adds_states(self, node: fx.Node) -> bool:
        is_sum = operations.name(node) in ("add", "sub")
        return is_sum and all(same_tensor(term, node) and term in self._moving for term in node.args[:2])

    # -- rewriting

    def rewrite(self, turn: _Turn) -> None:
        graph, total = self._graph, turn.total
        stream, other = (self._now.get(node, node) for node in (turn.stream, turn.other))
        with graph.inserting_before(self._first(turn, stream)):
            state, own = self._state(total, stream, other)
            read = self._part(total, state, 1 - own, other)
            if turn.read is not turn.other:
                read = new_node(graph, total, aten.reshape.default, read, *turn.read.args[1:])
        for member in turn.inside:
            member.replace_input_with(other if turn.read is turn.other else turn.read, read)
        with graph.inserting_before(total):
            change, beside = self._flat(total, turn.change), zeros_like(graph, total, self._flat(total, other))
            # Not a padding, whose shape rule takes the batch for a fixed number.
            both = [change, beside] if own == 0 else [beside, change]
            padded = new_node(graph, total, aten.cat.default, both, 1)
            kept = state if turn.scale is None else self._scaled(total, state, own, turn.scale, beside)
            end = new_node(graph, total, total.target, kept, padded)
            new, same = self._part(total, end, own, stream), self._part(total, end, 1 - own, other)
        after = [user for user in other.users if user not in turn.inside and total < user]
        for user in after:
            user.replace_input_with(other, same)
        if turn.read is not turn.other:
            self._read_again(turn, same)
        self._now.update({turn.total: new, turn.other: same})
        self._joined.update({new: (end, own), same: (end, 1 - own)})
        replace_node(graph, total, new)

    def _scaled(self, like: fx.Node, state: fx.Node, own: int, scale: fx.Node, beside: fx.Node) -> fx.Node:
        """The joined state, of which the stream is multiplied by its scale and the other by one."""
        ones = filled_like(self._graph, like, beside, aten.ones_like.default)
        scales = [self._flat(like, scale), ones]
        both = new_node(self._graph, like, aten.cat.default, scales if own == 0 else scales[::-1], 1)
        return new_node(self._graph, like, aten.mul.Tensor, state, both)

    def _read_again(self, turn: _Turn, same: fx.Node) -> None:
        """Who reads the other stream with a folded batch after this sum reads it from the joined state as well."""
        later = [user for user in turn.read.users if turn.total < user]
        if later:
            with self._graph.inserting_before(turn.total):
                again = new_node(self._graph, turn.read, aten.reshape.default, same, *turn.read.args[1:])
            for user in later:
                user.replace_input_with(turn.read, again)

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
        joined = new_node(self._graph, like, aten.cat.default, both, 1)
        joined.meta[OURS] = True
        return joined, 0

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
