"""An exported program without operations that write in place or whose aliasing depends on their input.

`run_decompositions({})` does this for every program, by tracing it a second time: two thirds of the time of an export.
What it changes in most networks is little and known: activations and sums in place, batch norms, reshapes, casts. Where
nothing else would change, these nodes are rewritten one by one, to the same nodes; any other program is traced again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from skipscope.trace.program import NUMBERS
from skipscope.trace.written_views import without_writing_through_views

aten = torch.ops.aten
Rewritten = tuple[Any, tuple[Any, ...], Mapping[str, Any]]  # the target, the arguments and the keywords of a node


def functional(exported: ExportedProgram) -> ExportedProgram:
    """The same program without mutation; `exported` itself may be changed."""
    write_as_values(exported.graph)
    if not is_rewritable(exported):
        exported.graph_module.recompile()
        return exported.run_decompositions({})
    for node in [node for node in exported.graph.nodes if node.op == "call_function"]:
        rewritten = _rewritten(node)
        assert rewritten is not None
        if _writes(node):
            written: Any = node.args[0]
            written.replace_all_uses_with(node, delete_user_cb=lambda user, node=node: node < user)
        node.target, node.args, node.kwargs = rewritten
        if node.target in _OF_BATCH_NORMS:
            _take_first_result(exported.graph, node)
    return exported


def write_as_values(graph: fx.Graph) -> None:
    """Take out writing through views, where that is safe."""
    without_writing_through_views(graph, _writes, _is_new, _without_writing)


def is_rewritable(exported: ExportedProgram) -> bool:
    """Can the program be made functional without tracing it a second time?"""
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    return all(_rewritten(node) is not None for node in nodes) and not _sees_a_write(nodes)


def writes_elsewhere(nodes: list[fx.Node]) -> bool:
    """Does a part of a program write to a tensor that it did not make itself, or to a view of one?"""
    inside = set(nodes)
    return any(_writes(node) and node.args[0] not in inside for node in nodes) or _sees_a_write(nodes)


def _rewritten(node: fx.Node) -> Rewritten | None:
    """The node as `run_decompositions({})` and then `tidy` have it; None where that takes more than one node."""
    if (rewrite := _REWRITES.get(node.target)) is not None:
        return rewrite(node)
    target = _without_writing(node) if _writes(node) else node.target
    # Items of tuples and the arithmetic of sizes; operations with graphs of their own (autocast) are neither.
    is_python = node.target is operator.getitem or isinstance(node.meta.get("val"), NUMBERS)
    return (target, node.args, node.kwargs) if is_python or _is_kept(target) else None


def _is_kept(operation: Any) -> bool:
    """Does `run_decompositions({})` leave the operation as it is? Composite ones only if they never alias."""
    if not isinstance(operation, OpOverload) or operation._schema.is_mutable:
        return False
    if not operation.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return operation.namespace == "aten" or _is_new_by_schema(operation)  # others: a user's own, one operation
    aliases = any(argument.alias_info is not None for argument in operation._schema.arguments)
    return not aliases and torch.Tag.maybe_aliasing_or_mutating not in operation.tags


# -- writing in place


def _writes(node: fx.Node) -> bool:
    is_mutable = isinstance(node.target, OpOverload) and node.target._schema.is_mutable
    return is_mutable and _REWRITES.get(node.target) is not _dropout  # in evaluation mode it writes nothing


def _without_writing(node: fx.Node) -> OpOverload | None:
    """`aten.relu_.default` -> `aten.relu.default`, if there is one with the same arguments and a result of one type."""
    operation: Any = node.target
    schema, name = operation._schema, operation._schema.name.removeprefix("aten::")
    written = [i for i, argument in enumerate(schema.arguments) if argument.alias_info is not None]
    if written != [0] or not name.endswith("_") or torch.Tag.nondeterministic_seeded in operation.tags:
        return None
    found = getattr(getattr(aten, name[:-1], None), operation._overloadname, None)
    if found is None or len(found._schema.returns) != 1:
        return None
    before, after = ([(a.name, str(a.type), a.kwarg_only) for a in s.arguments] for s in (schema, found._schema))
    values = [argument.meta.get("val") for argument in node.all_input_nodes]
    types = {value.dtype for value in values if isinstance(value, Tensor)}
    dtype = node.meta["val"].dtype
    return found if before == after and all(torch.promote_types(dtype, some) == dtype for some in types) else None


def _sees_a_write(nodes: list[fx.Node]) -> bool:
    """Is a tensor written to that is a view of another or an input, or of which a view was taken before?"""
    place = {node: i for i, node in enumerate(nodes)}
    groups: dict[fx.Node, list[fx.Node]] = {}  # of a tensor that is written to: itself and the results of writing
    for node in nodes:
        if _writes(node):
            target: Any = node.args[0]
            groups[node] = groups.setdefault(target, [target])
            groups[node].append(node)
    return any(
        not _is_new(group[0])
        or any(_may_alias(user) and place[user] < place[group[-1]] for node in group for user in node.users)
        for group in groups.values()
    )


def _is_new(node: fx.Node) -> bool:
    """Is the tensor made by the node, and neither a view nor an input?"""
    if node.target is aten.batch_norm.default:
        return True
    return isinstance(node.target, OpOverload) and _is_new_by_schema(node.target)


def _is_new_by_schema(operation: OpOverload) -> bool:
    if torch.Tag.maybe_aliasing_or_mutating in operation.tags:
        return False
    return all(result.alias_info is None for result in operation._schema.returns)


def _may_alias(user: fx.Node) -> bool:
    return user.op != "output" and not _writes(user) and not _is_new(user)


# -- operations of which it depends on their input whether they alias it


def _as_it_is(node: fx.Node) -> Rewritten:
    """`tidy` takes the node out, or treats it as a reshape."""
    return node.target, node.args, node.kwargs


def _dropout(node: fx.Node) -> Rewritten | None:
    """In evaluation mode; in place, it hands on the very tensor that it was given, as it does otherwise."""
    if node.args[2] is not False:
        return None
    target: Any = node.target
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    return getattr(aten, name).default, node.args, node.kwargs


def _batch_norm(node: fx.Node) -> Rewritten | None:
    """With given statistics, or with those of its input; on a GPU it depends on cuDNN what a batch norm becomes."""
    x, weight, bias, mean, variance, training, momentum, eps, _ = node.args
    if node.meta["val"].device.type != "cpu":
        return None
    if mean is None and variance is None and training is True:
        return aten._native_batch_norm_legit.no_stats, (x, weight, bias, True, momentum, eps), {}
    if mean is None or variance is None or training is not False:
        return None
    arguments = (x, weight, bias, mean, variance, momentum, eps)
    return aten._native_batch_norm_legit_no_training.default, arguments, {}


def _take_first_result(graph: fx.Graph, node: fx.Node) -> None:
    value = node.meta["val"]
    with graph.inserting_after(node):
        result = graph.call_function(operator.getitem, (node, 0))
    result.meta = dict(node.meta)
    size = value.shape[1] if node.target is aten._native_batch_norm_legit.no_stats else 0
    node.meta["val"] = (value, value.new_empty(size), value.new_empty(size))
    node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)


def _reshape(node: fx.Node) -> Rewritten | None:
    """At most one size may depend on the batch."""
    shape = [size if isinstance(size, int) else -1 for size in node.meta["val"].shape]
    return (aten.reshape.default, (node.args[0], shape), {}) if shape.count(-1) <= 1 and 0 not in shape else None


def _expand(node: fx.Node) -> Rewritten | None:
    """To sizes that do not depend on the batch, where they are not those that the tensor has."""
    source: Any = node.args[0]
    before, after = source.meta["val"].shape, node.meta["val"].shape
    missing = len(after) - len(before)
    # Compared as text: comparing sizes adds guards.
    kept = [axis >= missing and str(size) == str(before[axis - missing]) for axis, size in enumerate(after)]
    if not all(stays or isinstance(size, int) for stays, size in zip(kept, after, strict=True)):
        return None
    sizes = [size if isinstance(size, int) else -1 for size in after]
    return aten.expand.default, (source, sizes), {}


def _reversed_axes(node: fx.Node) -> Rewritten:
    return aten.permute.default, (node.args[0], list(reversed(range(node.meta["val"].dim())))), {}


def _swapped_axes(node: fx.Node) -> Rewritten:
    return aten.transpose.int, node.args, {}


def _chunk(node: fx.Node) -> Rewritten | None:
    """All pieces but the last have the size of the first."""
    axis: Any = node.args[2] if len(node.args) > 2 else 0
    sizes = [piece.shape[axis] for piece in node.meta["val"]]
    if not all(isinstance(size, int) and size for size in sizes):
        return None
    return aten.split.Tensor, (node.args[0], sizes[0], *node.args[2:]), {}


def _cast(node: fx.Node) -> Rewritten | None:
    """To another type on the same device; to the same type it is a copy, which `tidy` takes out."""
    source: Any = node.args[0]
    before, after = source.meta["val"], node.meta["val"]
    if before.device != after.device or before.layout != after.layout:
        return None
    return aten._to_copy.default, (source,), {"dtype": after.dtype}


_OF_BATCH_NORMS = (aten._native_batch_norm_legit_no_training.default, aten._native_batch_norm_legit.no_stats)
_REWRITES: Mapping[Any, Callable[[fx.Node], Rewritten | None]] = {
    aten.alpha_dropout.default: _dropout,
    aten.alpha_dropout_.default: _dropout,
    aten.batch_norm.default: _batch_norm,
    aten.chunk.default: _chunk,
    aten.contiguous.default: _as_it_is,
    aten.dropout.default: _dropout,
    aten.dropout_.default: _dropout,
    aten.expand_as.default: _expand,
    aten.feature_dropout.default: _dropout,
    aten.feature_dropout_.default: _dropout,
    aten.flatten.using_ints: _reshape,
    aten.numpy_T.default: _reversed_axes,
    aten.reshape.default: _as_it_is,
    aten.reshape_as.default: _reshape,
    aten.swapaxes.default: _swapped_axes,
    aten.to.device: _cast,
    aten.to.dtype: _cast,
    aten.to.dtype_layout: _cast,
    aten.unflatten.int: _reshape,
    aten.view_as.default: _reshape,
}
