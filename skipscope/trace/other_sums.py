"""Sums of paths that are written in another way than `add`, rewritten as sums.

    stack([x, f]).mean(0), (w * stack([x, f])).sum(0), tensordot, einsum    x / 2 + f / 2, w0 x + w1 f
    x.index_add(...), x.scatter_add(...), x[:, 1:] += f                     x + (zeros with f in its place)
    x + a (f - x)                                                           (1 - a) x + a f

The last is an interpolation: its skip is not x but (1 - a) x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.graph_edits import new_node, replace_node, same_tensor, zeros_like

aten = torch.ops.aten
Rewrite = Callable[[fx.Graph, fx.Node], None]


# -- stacks


def _reduced(graph: fx.Graph, node: fx.Node) -> None:
    """The sum or mean of a stack along its own axis, or of a stack times weights."""
    source, over = node.args[0], node.args[1] if len(node.args) > 1 else None
    if not isinstance(source, fx.Node) or not isinstance(over, list | tuple) or len(over) != 1:
        return
    if len(node.args) > 2 or node.kwargs:
        return
    weights = None
    stack = source
    if operations.name(source) == "mul" and len(source.users) == 1:
        stacks = [factor for factor in source.args[:2] if _is_stack(factor)]
        if len(stacks) != 1 or not isinstance(source.args[0], fx.Node) or not isinstance(source.args[1], fx.Node):
            return
        stack = stacks[0]  # type: ignore[assignment]
        weights = source.args[1] if source.args[0] is stack else source.args[0]
        if not same_tensor(stack, source):
            return
    if not _is_stack(stack):
        return
    axis = int(over[0]) % stack.meta["val"].dim()  # type: ignore[arg-type]
    if axis != _axis(stack):
        return
    terms = list(stack.args[0])  # type: ignore[arg-type]
    with graph.inserting_before(node):
        if weights is not None:
            terms = _weighted(graph, node, terms, weights, axis, stack.meta["val"].dim())
        if operations.name(node) == "mean":
            terms = [new_node(graph, node, aten.mul.Tensor, term, 1 / len(terms)) for term in terms]
        replace_node(graph, node, _added(graph, node, terms))


def _weighted(
    graph: fx.Graph, node: fx.Node, terms: Sequence[Any], weights: Any, axis: int, dimensions: int
) -> list[fx.Node]:
    """weights: a tensor that is multiplied with the stack of the terms, along an axis of it."""
    own = weights.meta["val"].dim()
    along = axis - (dimensions - own)  # the axis of the stack, counted among those of the weights
    products = []
    for i, term in enumerate(terms):
        if along < 0 or weights.meta["val"].shape[along] == 1:
            factor = weights if along < 0 else new_node(graph, node, aten.squeeze.dim, weights, along)
        else:
            factor = new_node(graph, node, aten.select.int, weights, along, i)
        products.append(new_node(graph, node, aten.mul.Tensor, term, factor))
    return products


def _contracted(graph: fx.Graph, node: fx.Node) -> None:
    """tensordot or einsum of a vector of weights and a stack, over the axis of the stack."""
    pairs: list[tuple[Any, Any, Any]]
    if operations.name(node) == "tensordot":
        first, second, of_first, of_second = node.args[:4]
        pairs = [(first, second, of_second), (second, first, of_first)]
    else:
        pairs = _vector_and_stack(node)
    for weights, stack, over in pairs:
        if not _is_stack(stack) or not isinstance(weights, fx.Node) or weights.meta["val"].dim() != 1:
            continue
        if [int(a) % stack.meta["val"].dim() for a in over] != [_axis(stack)]:
            continue
        with graph.inserting_before(node):
            products = [
                new_node(graph, node, aten.mul.Tensor, term, new_node(graph, node, aten.select.int, weights, 0, i))
                for i, term in enumerate(stack.args[0])
            ]
            replace_node(graph, node, _added(graph, node, products))
        return


def _vector_and_stack(node: fx.Node) -> list[tuple[Any, Any, list[int]]]:
    """Of an einsum such as "n,nbd->bd": the vector, the stack, and the axis of the stack that is summed over."""
    equation, operands = str(node.args[0]).replace(" ", ""), node.args[1]
    if "->" not in equation or "." in equation or not isinstance(operands, list | tuple) or len(operands) != 2:
        return []
    inputs, output = equation.split("->")
    one, two = inputs.split(",")
    found = []
    for vector, stack, weights, states in ((one, two, *operands), (two, one, operands[1], operands[0])):
        if len(vector) == 1 and stack.replace(vector, "", 1) == output and stack.count(vector) == 1:
            found.append((weights, states, [stack.index(vector)]))
    return found


def _is_stack(node: Any) -> bool:
    return isinstance(node, fx.Node) and operations.name(node) == "stack" and len(node.users) == 1


def _axis(stack: fx.Node) -> int:
    axis: Any = stack.args[1] if len(stack.args) > 1 else stack.kwargs.get("dim", 0)
    return int(axis) % int(stack.meta["val"].dim())


def _added(graph: fx.Graph, node: fx.Node, terms: Sequence[Any]) -> Any:
    total, *rest = terms
    for term in rest:
        total = new_node(graph, node, aten.add.Tensor, total, term)
    return total


# -- sums into some places of a tensor


def _into_places(graph: fx.Graph, node: fx.Node) -> None:
    """index_add and scatter_add: a sum with a tensor of zeros into which the rest is added."""
    state = node.args[0]
    if not isinstance(state, fx.Node) or operations.name(state) in operations.SHAPE_ONLY or _is_constant(state):
        return
    _add_to_zeros(graph, node, state, (*node.args[1:],))


def _into_slice(graph: fx.Graph, node: fx.Node) -> None:
    """x[:, 1:] += f, which writes slice(x) + f over the slice."""
    state, written, *place = node.args
    for again in list(node.users):  # python writes what it has just written once more
        if operations.name(again) == operations.name(node) and _writes_the_same(again, node):
            replace_node(graph, again, node)
    if not isinstance(written, fx.Node) or operations.name(written) != "add" or written.kwargs:
        return
    reader = operations.name(node).removesuffix("_scatter")
    for old, rest in (written.args[:2], written.args[1::-1]):
        reads = isinstance(old, fx.Node) and operations.name(old) == reader
        if reads and old.args[0] is state and list(old.args[1:]) == place and isinstance(rest, fx.Node):  # type: ignore[union-attr]
            if same_tensor(rest, written) and isinstance(state, fx.Node):
                _add_to_zeros(graph, node, state, (rest, *place))
            return


def _writes_the_same(again: fx.Node, node: fx.Node) -> bool:
    """Into what a node has written into, at the same place, also a copy of it?"""
    value: Any = again.args[1]
    if operations.name(value) == "copy" and same_tensor(value, value.args[1]):
        value = value.args[1]
    return [again.args[0], value, *again.args[2:]] == [node, *node.args[1:]]


def _add_to_zeros(graph: fx.Graph, node: fx.Node, state: fx.Node, arguments: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        zeros = zeros_like(graph, node, state)
        rest = new_node(graph, node, node.target, zeros, *arguments, **node.kwargs)
        replace_node(graph, node, new_node(graph, node, aten.add.Tensor, state, rest))


def _is_constant(node: fx.Node) -> bool:
    return operations.name(node) in ("zeros", "ones", "full", "empty")


# -- interpolations


def interpolation(graph: fx.Graph, node: fx.Node) -> None:
    """x + a (f - x)."""
    if node.kwargs or len(node.args) != 2:
        return
    for state, step in (node.args, node.args[::-1]):
        if not isinstance(state, fx.Node) or not isinstance(step, fx.Node) or not isinstance(state.meta["val"], Tensor):
            continue
        if operations.name(step) != "mul" or len(step.users) != 1:
            continue
        for rate, change in (step.args, step.args[::-1]):
            if not isinstance(change, fx.Node) or operations.name(change) != "sub" or len(change.users) != 1:
                continue
            if change.kwargs or change.args[1] is not state or not isinstance(change.args[0], fx.Node):
                continue
            with graph.inserting_before(node):
                if isinstance(rate, fx.Node):
                    rest: Any = new_node(graph, node, aten.rsub.Scalar, rate, 1)
                else:
                    rest = 1 - rate  # type: ignore[operator]
                kept = new_node(graph, node, aten.mul.Tensor, state, rest)
                new = new_node(graph, node, aten.mul.Tensor, change.args[0], rate)
                replace_node(graph, node, new_node(graph, node, aten.add.Tensor, kept, new))
            return


SUMS_OF_STACKS: dict[str, Rewrite] = {
    "sum": _reduced,
    "mean": _reduced,
    "tensordot": _contracted,
    "einsum": _contracted,
}


SUMS_INTO_PLACES: dict[str, Rewrite] = {
    "index_add": _into_places,
    "scatter_add": _into_places,
    "slice_scatter": _into_slice,
    "select_scatter": _into_slice,
}
