"""Take out of an exported graph what is no computation, and write sums in one way.

After this the graphs of one model on different torch versions agree, and a sum of paths is always `add` or
`sub`: fused forms (addcmul, addmm, lerp) are split into the sum and what is added, and so are the forms of
`other_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.coupled_streams import join_streams
from skipscope.trace.folded_batch import unfold_batch
from skipscope.trace.graph_edits import new_node, replace_node, same_tensor, same_value
from skipscope.trace.other_sums import SUMS_INTO_PLACES, SUMS_OF_STACKS, interpolation
from skipscope.trace.program import Program
from skipscope.trace.put_together import put_together

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
        elif operations.name(node) == "add":
            interpolation(graph, node)
    graph.eliminate_dead_code()
    program.refresh()
    put_together(program)
    unfold_batch(program)
    join_streams(program)
    graph.lint()


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
    if operation in ("slice_scatter", "select_scatter") and _reads(node.args[1], source, operation, node.args[2:]):
        return source  # its own entries in their own place
    if operation in ("slice_scatter", "copy") and same_tensor(node.args[1], node):
        return node.args[1]  # type: ignore[return-value]
    if operation in ("dropout", "feature_dropout", "alpha_dropout") and not node.args[2]:
        return source
    if not same_tensor(source, node):
        return None
    if operation in ("_to_copy", "to", "expand", "reshape", "view", "_unsafe_view", "slice"):
        return source
    neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(operation)
    if neutral is not None and isinstance(node.args[1], int | float) and node.args[1] == neutral:
        return source
    return None


def _reads(node: Any, source: fx.Node, scatter: str, place: Sequence[Any]) -> bool:
    """Is a node what stands in a place of the source?"""
    reads = isinstance(node, fx.Node) and operations.name(node) == scatter.removesuffix("_scatter")
    return reads and node.args[0] is source and list(node.args[1:]) == list(place)


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
        if same_tensor(folded.args[0], back) and same_tensor(rest, total):
            with graph.inserting_before(back):
                term = new_node(graph, total, aten.reshape.default, rest, back.args[1])
                pair = [folded.args[0], term] if side == 0 else [term, folded.args[0]]
                replace_node(graph, back, new_node(graph, total, total.target, *pair, **total.kwargs))
            return


def _addcmul(graph: fx.Graph, node: fx.Node) -> None:
    start, first, second = node.args
    value = node.kwargs.get("value", 1)
    product = aten.mul.Tensor if operations.name(node) == "addcmul" else aten.div.Tensor
    with graph.inserting_before(node):
        term = new_node(graph, node, product, first, second)
        replace_node(graph, node, new_node(graph, node, aten.add.Tensor, start, term, alpha=value))


def _addmm(graph: fx.Graph, node: fx.Node) -> None:
    start, first, second = node.args
    beta, alpha = node.kwargs.get("beta", 1), node.kwargs.get("alpha", 1)
    product = aten.mm.default if operations.name(node) == "addmm" else aten.bmm.default
    with graph.inserting_before(node):
        term = same_value(graph, node, product, first, second)
        if beta != 1:
            start = new_node(graph, node, aten.mul.Tensor, start, beta)
        replace_node(graph, node, same_value(graph, node, aten.add.Tensor, start, term, alpha=alpha))


def _lerp(graph: fx.Graph, node: fx.Node) -> None:
    start, end, weight = node.args
    with graph.inserting_before(node):
        if isinstance(weight, fx.Node):
            rest: Any = new_node(graph, node, aten.rsub.Scalar, weight, 1)
        else:
            rest = 1 - weight  # type: ignore[operator]
        kept = new_node(graph, node, aten.mul.Tensor, start, rest)
        new = new_node(graph, node, aten.mul.Tensor, end, weight)
        replace_node(graph, node, new_node(graph, node, aten.add.Tensor, kept, new))


def _typed(graph: fx.Graph, node: fx.Node) -> None:
    """`positions.type_as(x)` takes from x its type alone, which is no path for its entries."""
    with graph.inserting_before(node):
        typed = new_node(graph, node, aten._to_copy.default, node.args[0], dtype=node.meta["val"].dtype)
        replace_node(graph, node, typed)


def _copied(graph: fx.Graph, node: fx.Node) -> None:
    """A tensor written over the whole of a larger one: torch has no derivative of `copy`, but of a sum with zeros."""
    target, written = node.args[:2]
    assert isinstance(target, fx.Node)
    assert isinstance(written, fx.Node)
    if target.meta["val"].dtype != written.meta["val"].dtype:
        return
    with graph.inserting_before(node):
        zeros = new_node(graph, node, aten.zeros_like.default, target)
        replace_node(graph, node, new_node(graph, node, aten.add.Tensor, zeros, written))
    zeros.args = ()  # as of all tensors that are made in the shape of another


_SPLIT: dict[str, Callable[[fx.Graph, fx.Node], None]] = {
    "addcmul": _addcmul,
    "addcdiv": _addcmul,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "lerp": _lerp,
    "copy": _copied,
    "type_as": _typed,
    **SUMS_OF_STACKS,
    **SUMS_INTO_PLACES,
}
