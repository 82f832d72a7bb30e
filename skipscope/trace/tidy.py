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
RESHAPES = ("reshape", "view", "_unsafe_view", "flatten")


def tidy(program: Program) -> None:
    graph = program.graph
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if _is_assertion(node):
            graph.erase_node(node)
        elif operations.name(node) in operations.SHAPE_ONLY:
            # Made from the batch size when it is read: what it takes its shape from is not a value that it uses.
            node.args = node.args[1:]
        elif (source := _same_as(node)) is not None:
            node.replace_all_uses_with(source)
            graph.erase_node(node)
        elif operations.name(node) in ("view", "_unsafe_view"):
            # A view fails where a dropped copy left other strides; a reshape copies when it must.
            node.target = aten.reshape.default
        elif (split := _SPLIT.get(operations.name(node))) is not None:
            split(graph, node)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.op == "call_function" and operations.name(node) in RESHAPES:
            _unfold(graph, node)
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
    if operation in ("transpose", "permute") and _undoes(node, source):
        return source.args[0]  # type: ignore[return-value]
    if operation in ("slice", "select") and operations.name(source) == f"{operation}_scatter":
        # What was just written into this place (a sum in place on a view of a tensor).
        written, *place = source.args[1:]
        return written if list(node.args[1:]) == place and isinstance(written, fx.Node) else None
    if operation in ("slice_scatter", "copy") and _same_shape(node.args[1], node):
        return node.args[1]  # type: ignore[return-value]
    if operation in ("dropout", "feature_dropout", "alpha_dropout") and not node.args[2]:
        return source
    if not _same_shape(source, node):
        return None
    if operation in ("_to_copy", "to", "expand", "reshape", "view", "_unsafe_view", "slice"):
        return source
    neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(operation)
    if neutral is not None and isinstance(node.args[1], int | float) and node.args[1] == neutral:
        return source
    return None


def _same_shape(a: Any, b: Any) -> bool:
    """Do two nodes hold tensors of one shape, type and device?"""
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node) or not operations.same_shape(a, b):
        return False
    before, after = a.meta["val"], b.meta["val"]
    return bool(before.dtype == after.dtype and before.device == after.device)


def _undoes(node: fx.Node, source: fx.Node) -> bool:
    """Does a permutation of axes put back what its source permuted?"""
    first, second = _permutation(source), _permutation(node)
    return first is not None and second is not None and [first[i] for i in second] == list(range(len(first)))


def _permutation(node: fx.Node) -> list[int] | None:
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return None
    axes = list(range(value.dim()))
    if operations.name(node) == "transpose":
        a, b = (int(axis) % value.dim() for axis in node.args[1:3])  # type: ignore[arg-type]
        axes[a], axes[b] = axes[b], axes[a]
        return axes
    if operations.name(node) == "permute":
        return [int(axis) % value.dim() for axis in node.args[1]]  # type: ignore[union-attr, arg-type]
    return None


def _unfold(graph: fx.Graph, back: fx.Node) -> None:
    """reshape(reshape(x) + f) in the shape of x -> x + reshape(f): a sum with the batch folded into the tokens."""
    total = back.args[0]
    if not isinstance(total, fx.Node) or operations.name(total) not in ("add", "sub") or len(total.users) != 1:
        return
    for side, other in ((0, 1), (1, 0)):
        folded, rest = total.args[side], total.args[other]
        if not isinstance(folded, fx.Node) or not isinstance(rest, fx.Node) or operations.name(folded) not in RESHAPES:
            continue
        if _same_shape(folded.args[0], back) and _same_shape(rest, total):
            with graph.inserting_before(back):
                term = _new(graph, total, aten.reshape.default, rest, back.args[1])
                pair = [folded.args[0], term] if side == 0 else [term, folded.args[0]]
                _replace(graph, back, _new(graph, total, total.target, *pair, **total.kwargs))
            return


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


def _copied(graph: fx.Graph, node: fx.Node) -> None:
    """A tensor written over the whole of a larger one: torch has no derivative of `copy`, but of a sum with zeros."""
    target, written = node.args[:2]
    assert isinstance(target, fx.Node)
    assert isinstance(written, fx.Node)
    if target.meta["val"].dtype != written.meta["val"].dtype:
        return
    with graph.inserting_before(node):
        zeros = _new(graph, node, aten.zeros_like.default, target)
        _replace(graph, node, _new(graph, node, aten.add.Tensor, zeros, written))
    zeros.args = ()  # as of all tensors that are made in the shape of another


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
    "copy": _copied,
}
