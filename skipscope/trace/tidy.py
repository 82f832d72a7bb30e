"""Take out of an exported graph what is no computation, and write sums in one way.

After this the graphs of one model on different torch versions agree, and a sum of paths is always `add` or
`sub`: fused forms (addcmul, addmm, lerp, a summed stack) are split into the sum and what is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.program import Program

aten = torch.ops.aten


def tidy(program: Program) -> None:
    graph = program.graph
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if _is_assertion(node):
            graph.erase_node(node)
        elif (source := _same_as(node)) is not None:
            node.replace_all_uses_with(source)
            graph.erase_node(node)
        elif operations.name(node) in ("view", "_unsafe_view"):
            # A view fails where a dropped copy left other strides; a reshape copies when it must.
            node.target = aten.reshape.default
        elif (split := _SPLIT.get(operations.name(node))) is not None:
            split(graph, node)
    graph.eliminate_dead_code()
    graph.lint()
    program.refresh()


def _is_assertion(node: fx.Node) -> bool:
    operation = operations.name(node)
    return not node.users and (operation.startswith("_assert") or "sym_constrain" in operation or "assert" in operation)


def _same_as(node: fx.Node) -> fx.Node | None:
    """The argument that the node merely hands on, if that is all it does."""
    operation = operations.name(node)
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return None
    if operation in ("clone", "alias", "contiguous", "lift_fresh_copy", "view_as"):
        return source
    if operation in ("dropout", "feature_dropout", "alpha_dropout") and not node.args[2]:
        return source
    before, after = source.meta.get("val"), node.meta.get("val")
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return None
    if before.dtype != after.dtype or before.device != after.device or before.dim() != after.dim():
        return None
    if not all(a is b or str(a) == str(b) for a, b in zip(before.shape, after.shape, strict=True)):
        return None
    if operation in ("_to_copy", "to", "expand", "reshape", "view", "_unsafe_view", "slice"):
        return source
    neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(operation)
    if neutral is not None and isinstance(node.args[1], int | float) and node.args[1] == neutral:
        return source
    return None


def _new(graph: fx.Graph, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A node before `like`, in the same module, with the shape that its own arguments give it."""
    node = graph.call_function(target, args, kwargs)
    node.meta = dict(like.meta)
    values = fx.node.map_arg((args, kwargs), lambda argument: argument.meta["val"])
    fake = next(v for v in torch.utils._pytree.tree_leaves(values) if hasattr(v, "fake_mode"))
    with fake.fake_mode, torch.no_grad():
        node.meta["val"] = target(*values[0], **values[1])
    return node


def _addcmul(graph: fx.Graph, node: fx.Node) -> None:
    start, first, second = node.args
    value = node.kwargs.get("value", 1)
    product = aten.mul.Tensor if operations.name(node) == "addcmul" else aten.div.Tensor
    with graph.inserting_before(node):
        term = _new(graph, node, product, first, second)
        _replace(graph, node, _new(graph, node, aten.add.Tensor, start, term, alpha=value))


def _addmm(graph: fx.Graph, node: fx.Node) -> None:
    start, first, second = node.args
    beta, alpha = node.kwargs.get("beta", 1), node.kwargs.get("alpha", 1)
    product = aten.mm.default if operations.name(node) == "addmm" else aten.bmm.default
    with graph.inserting_before(node):
        term = _new(graph, node, product, first, second)
        if beta != 1:
            start = _new(graph, node, aten.mul.Tensor, start, beta)
        _replace(graph, node, _new(graph, node, aten.add.Tensor, start, term, alpha=alpha))


def _lerp(graph: fx.Graph, node: fx.Node) -> None:
    start, end, weight = node.args
    with graph.inserting_before(node):
        if isinstance(weight, fx.Node):
            rest: Any = _new(graph, node, aten.rsub.Scalar, weight, 1)
        else:
            rest = 1 - weight  # type: ignore[operator]
        kept = _new(graph, node, aten.mul.Tensor, start, rest)
        new = _new(graph, node, aten.mul.Tensor, end, weight)
        _replace(graph, node, _new(graph, node, aten.add.Tensor, kept, new))


def _summed_stack(graph: fx.Graph, node: fx.Node) -> None:
    stack = node.args[0]
    if not isinstance(stack, fx.Node) or operations.name(stack) != "stack" or len(stack.users) != 1:
        return
    axis = stack.args[1] if len(stack.args) > 1 else stack.kwargs.get("dim", 0)
    over = node.args[1] if len(node.args) > 1 else None
    if list(over or ()) != [axis] or len(node.args) > 2 or node.kwargs:  # type: ignore[arg-type]
        return
    total, *rest = list(stack.args[0])  # type: ignore[arg-type]
    with graph.inserting_before(node):
        for term in rest:
            total = _new(graph, node, aten.add.Tensor, total, term)
    _replace(graph, node, total)


def _replace(graph: fx.Graph, node: fx.Node, new: Any) -> None:
    node.replace_all_uses_with(new)
    graph.erase_node(node)


_SPLIT: dict[str, Callable[[fx.Graph, fx.Node], None]] = {
    "addcmul": _addcmul,
    "addcdiv": _addcmul,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "lerp": _lerp,
    "sum": _summed_stack,
}
