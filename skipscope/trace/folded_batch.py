"""States in which the batch shares an axis with something else, such as the patches or channels of a sample.

A model that folds channels or windows into the batch has states of (batch x patches, ...). A sample's state is then
`patches` rows of it. The sums of such states are rewritten with an axis for the batch alone, between two reshapes:
what is measured has samples again, and the Jacobian of a sample is block by block that of its patches.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.graph_edits import new_node, replace_node, same_tensor
from skipscope.trace.operations import expression
from skipscope.trace.program import Program

aten = torch.ops.aten
RESHAPES = ("reshape", "view", "_unsafe_view", "flatten")


def unfold_batch(program: Program) -> None:
    if program.batch_symbol is None:
        return
    unfolding = _Unfolding(program)
    for node in list(program.graph.nodes):
        if operations.name(node) in ("add", "sub") and unfolding.is_folded_sum(node):
            unfolding.rewrite(node)
    if unfolding.rewritten:
        program.graph.eliminate_dead_code()
        program.refresh()


class _Fold(tuple[int, int, int]):
    """(axis, how many rows of a sample are outside the batch, how many are inside) of a folded axis."""


class _Unfolding:
    def __init__(self, program: Program) -> None:
        self._program, self._graph = program, program.graph
        self._folds: dict[fx.Node, _Fold | None] = {}
        self._unfolded: dict[fx.Node, fx.Node] = {}  # by the folded value
        self.rewritten = False
        for node in self._graph.nodes:
            self._folds[node] = self._found(node)

    def is_folded_sum(self, node: fx.Node) -> bool:
        terms = node.args[:2]
        return self._folds.get(node) is not None and all(same_tensor(term, node) for term in terms)

    def rewrite(self, node: fx.Node) -> None:
        """a + b in a folded shape -> folded(unfolded(a) + unfolded(b))."""
        fold = self._folds[node]
        assert fold is not None
        first, second = (self._own_axis(term, fold) for term in node.args[:2])
        with self._graph.inserting_before(node):
            total = new_node(self._graph, node, node.target, first, second, **node.kwargs)
            folded = new_node(self._graph, node, aten.reshape.default, total, self._folded_shape(node, fold))
        replace_node(self._graph, node, folded)
        self._folds[folded] = fold
        self._unfolded[folded] = total
        self.rewritten = True

    def _own_axis(self, node: Any, fold: _Fold) -> fx.Node:
        """The value with an axis for the batch; everything else reads it from there, so that it can be an entry."""
        if node not in self._unfolded:
            axis, outside, inside = fold
            shape = self._folded_shape(node, fold)
            shape[axis : axis + 1] = [*([outside] if outside > 1 else []), -1, *([inside] if inside > 1 else [])]
            users = list(node.users)
            with self._graph.inserting_after(node):
                apart = new_node(self._graph, node, aten.reshape.default, node, shape)
            with self._graph.inserting_after(apart):
                folded = new_node(self._graph, node, aten.reshape.default, apart, self._folded_shape(node, fold))
            for user in users:
                user.replace_input_with(node, folded)
            self._unfolded[node] = self._unfolded[folded] = apart
            self._folds[folded] = fold
        return self._unfolded[node]

    def _folded_shape(self, node: fx.Node, fold: _Fold) -> list[int]:
        return [-1 if axis == fold[0] else int(size) for axis, size in enumerate(node.meta["val"].shape)]

    # -- where the batch is

    def _found(self, node: fx.Node) -> _Fold | None:
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or not self._program.folds_batch(node):
            return None
        axes = [axis for axis, size in enumerate(value.shape) if not isinstance(expression(size), int)]
        rows = expression(value.shape[axes[0]]) / self._program.batch_symbol if len(axes) == 1 else None
        if rows is None or not getattr(rows, "is_Integer", False):
            return None
        if operations.name(node) in RESHAPES and isinstance(node.args[0], fx.Node):
            found = self._merged(node.args[0], node, axes[0])
            if found is not None:
                return found
        for argument in node.all_input_nodes:
            before = self._folds.get(argument)
            if before is not None and before[1] * before[2] == int(rows):
                return _Fold((axes[0], before[1], before[2]))
        return None

    def _merged(self, source: fx.Node, node: fx.Node, axis: int) -> _Fold | None:
        """Of a reshape that merges the batch with neighbouring axes: how many rows lie outside and inside of it."""
        batch = self._program.batch_axis(source)
        if batch is None or not isinstance(source.meta.get("val"), Tensor):
            return None
        before, after = list(source.meta["val"].shape), list(node.meta["val"].shape)
        rows = int(expression(after[axis]) / self._program.batch_symbol)
        for start in range(batch + 1):
            if prod(int(s) for s in before[:start]) != prod(int(s) for s in after[:axis]):
                continue
            outside = prod(int(s) for s in before[start:batch])
            for end in range(batch + 1, len(before) + 1):
                inside = prod(int(s) for s in before[batch + 1 : end])
                if outside * inside == rows:
                    return _Fold((axis, outside, inside))
        return None
