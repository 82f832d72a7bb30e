"""The way of some tokens through a piece of the graph, as a function of their entry states alone.

With t the only token at entry and exit, a unit of a transformer costs as much as for a sequence of one token; the
run for the whole sequence, from which keys, values and masks come, is made once for each floating type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from skipscope.numerics import measuring
from skipscope.trace.freshness import WhileFresh
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.program import in_type, last_uses
from skipscope.trace.tokens.along import Along
from skipscope.trace.tokens.attention import Places, is_causal, lets_through
from skipscope.trace.tokens.plan import PLACES, Mixing, Plan, RefusedError, Sizes, Step, Taken, Zeros, token_axis

if TYPE_CHECKING:
    from skipscope.trace.piece import Piece


class TokenPath:
    """From the entry states of some positions to the exit states of some, at a point. It raises RefusedError where
    that takes the whole sequence."""

    def __init__(self, piece: Piece, point: GraphPoint, entries: Sequence[int], exits: Sequence[int]) -> None:
        self.piece, self.point = piece, point
        program = piece.program
        self.axis, self.exit_axis = token_axis(program, piece.entry), token_axis(program, piece.exit)
        count = program.shape(piece.entry, point.batch)[self.axis]
        if program.shape(piece.exit, point.batch)[self.exit_axis] != count:
            raise RefusedError("its exit has another number of tokens than its entry")
        self.entries, self.exits, self.count = list(entries), list(exits), count
        self.plan = self._follow(sorted({*entries, *exits}))
        if self.plan.mixes_again:
            self.plan = self._follow(list(range(self.positions[0], self.positions[-1] + 1)))
            self._require_causal()
        self._prepared: dict[torch.dtype, Callable[[Tensor], Tensor]] = {}

    def _follow(self, positions: list[int]) -> Plan:
        self.positions = positions
        if len(positions) == self.count:
            raise RefusedError("all tokens take part")
        plan = self.piece.plan(self.point.batch, Sizes(self.count, len(positions)))
        if isinstance(plan, str):
            raise RefusedError(plan)
        return plan

    @property
    def state(self) -> Tensor:
        """The entry states of the chosen entry positions."""
        whole: Tensor = self.point.value(self.piece.entry)
        return whole.index_select(self.axis, torch.tensor(self.entries, device=whole.device))

    def bound(self) -> Callable[[Tensor], Tensor]:
        program, steps = self.piece.program, self.plan.steps
        used = {node for step in steps for node in step.node.all_input_nodes}
        weights = sum(weight.numel() for node in used if (weight := program.parameter(node)) is not None)
        return WhileFresh(self, self.point.seen, weights, lambda: self.plan.largest)

    def __call__(self, state: Tensor) -> Tensor:
        if state.dtype not in self._prepared:
            # Inside a derivative a constant would be a wrapper that ends with it, and it is kept for longer.
            with torch._C._DisableFuncTorch(), torch.no_grad(), measuring():
                self._prepared[state.dtype] = self._function(state.dtype)
        with measuring():
            return self._prepared[state.dtype](state)

    # -- constants

    def _function(self, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        piece, plan = self.piece, self.plan
        entry = self.point.value(piece.entry).to(dtype)
        device = entry.device
        leaves = pytree.tree_leaves([(step.args, dict(step.kwargs)) for step in plan.steps])
        taken = {leaf for leaf in leaves if isinstance(leaf, Taken)}
        values = self._whole({one.node for one in taken}, entry, dtype)
        positions = torch.tensor(self.positions, device=device)
        places = Places(positions, self.count, dtype)
        cut = {one: self._cut(one, values, positions) for one in taken}

        def filled(leaf: Any) -> Any:
            if isinstance(leaf, Taken):
                return cut[leaf]
            if isinstance(leaf, Zeros):
                return torch.zeros(leaf.shape, dtype=dtype, device=device)
            return places if leaf is PLACES else leaf

        steps: list[Step] = []
        for step in plan.steps:
            args, kwargs = pytree.tree_map(filled, (step.args, dict(step.kwargs)))
            args, kwargs = piece.program.adapted(args, kwargs, device, None if dtype == piece.program.dtype else dtype)
            steps.append(Step(step.node, step.target, args, kwargs))
        drop = last_uses([step.node for step in steps], {piece.exit})
        start = None
        if self.entries != self.positions:
            start = Along(self.axis).rows(entry, positions, self.count)
        put = torch.tensor([self.positions.index(one) for one in self.entries], device=device)
        read = torch.tensor([self.positions.index(one) for one in self.exits], device=device)
        all_exits = self.exits == self.positions
        entry_node, exit_node, axis, exit_axis = piece.entry, piece.exit, self.axis, self.exit_axis

        # Nothing here holds the path itself, so that its constants are freed as soon as nobody uses it.
        def run(state: Tensor) -> Tensor:
            rows = state if start is None else start.index_copy(axis, put, state)
            local: dict[fx.Node, Any] = {entry_node: rows}
            for step in steps:
                args, kwargs = fx.node.map_arg(step.args, local.__getitem__), step.kwargs
                if kwargs:
                    kwargs = fx.node.map_arg(kwargs, local.__getitem__)
                local[step.node] = step.target(*args, **kwargs)
                for dead in drop.get(step.node, ()):
                    local.pop(dead, None)
            value: Tensor = local[exit_node]
            return value if all_exits else value.index_select(exit_axis, read)

        return run

    def _whole(self, wanted: set[fx.Node], entry: Tensor, dtype: torch.dtype) -> dict[fx.Node, Any]:
        """Values of the run for the whole sequence, and weights, in a floating type."""
        piece, program, batch = self.piece, self.piece.program, self.point.batch
        values: dict[fx.Node, Any] = {piece.entry: entry}
        values.update({node: in_type(value, dtype) for node, value in self.point.values(piece.context).items()})
        inside = set(piece.nodes)
        needed: set[fx.Node] = set()
        waiting = [node for node in wanted if node in inside]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                hidden = piece.zero.get(node, frozenset())
                waiting += [one for one in node.all_input_nodes if one in inside and one not in hidden]
        nodes = [node for node in piece.nodes if node in needed]
        drop = last_uses(nodes, wanted | {piece.entry, *piece.context})
        program.run(nodes, values, batch, drop=drop, zero=piece.zero, dtype=dtype)
        for node in wanted - values.keys():
            value = program.outside(node, batch, entry.device, dtype)
            values[node] = value.detach() if isinstance(value, Tensor) else value
        return values

    def _cut(self, taken: Taken, values: dict[fx.Node, Any], positions: Tensor) -> Any:
        value = values[taken.node]
        if taken.part == "whole":
            return value
        assert taken.along is not None, "parts are of what has an axis for the tokens"
        if taken.part == "others":
            return taken.along.others(value, positions)
        return taken.along.rows(value, positions, self.count)

    # -- what follows several products

    def _require_causal(self) -> None:
        """Positions before the followed ones must not depend on them, and those after them must not be read."""
        with torch.no_grad(), measuring():
            asked = {one.node for one in self.plan.mixing if one.node is not None and one.by != "later"}
            entry = self.point.value(self.piece.entry)
            values = self._whole(asked, entry, entry.dtype) if asked else {}
            if not all(self._is_causal(one, values) for one in self.plan.mixing):
                raise RefusedError("tokens see later ones, and what they take from them comes back")

    def _become_weights(self, scores: fx.Node) -> bool:
        """Whether nothing reads these numbers, one for each pair of tokens, but as weights, which are looked at."""
        weights = {one.node for one in self.plan.mixing if one.by == "weights"}
        inside, waiting, pairs = set(self.piece.nodes), [scores], (self.count, self.count)
        while waiting:
            node = waiting.pop()
            for user in (user for user in node.users if user in inside):
                is_tensor = isinstance(user.meta.get("val"), Tensor)
                if is_tensor and self.piece.program.shape(user, self.point.batch)[-2:] == pairs:
                    waiting.append(user)
                elif node not in weights:
                    return False
        return True

    def _is_causal(self, mixing: Mixing, values: dict[fx.Node, Any]) -> bool:
        if mixing.node is None:
            return mixing.by != "everything"
        if mixing.by == "later":
            return self._become_weights(mixing.node)
        value: Tensor = values[mixing.node]
        if value.dim() < 2 or value.shape[-2] != self.count or value.shape[-1] != self.count:
            return False
        return is_causal(value if mixing.by == "weights" else lets_through(value))
