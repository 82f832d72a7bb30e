"""What each operation becomes when it runs for some positions of a sequence.

A rule gives the call in place of a node's own and where the positions lie in its value; or it refuses. Operations
without a rule are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.tokens.along import Along
from skipscope.trace.tokens.plan import Plan, RefusedError, Step, Zeros, map_nodes
from skipscope.trace.tokens.products import PRODUCTS

Rule = Callable[[Plan, fx.Node], tuple[Step, Along | list[Along]]]


def step_of(plan: Plan, node: fx.Node) -> tuple[Step, Along | list[Along]]:
    name, kind = operations.name(node), operations.kind(node)
    rule = PRODUCTS.get(name) or RULES.get(name) or KINDS.get(kind)
    if rule is None:
        raise RefusedError(f"it is not known what {operations.display(node)} does to single tokens")
    return rule(plan, node)


def given(node: fx.Node) -> dict[str, Any]:
    """The arguments of an operation by their names, with defaults."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    values = {one.name: one.default_value for one in arguments if one.has_default_value()}
    values.update({one.name: value for one, value in zip(arguments, node.args, strict=False)})
    return {**values, **node.kwargs}


def _whole(size: int, axis: int) -> int:
    return axis % size


def _refuse(node: fx.Node) -> RefusedError:
    return RefusedError(f"{operations.display(node)} mixes tokens")


# -- one entry from those at the same place


def _pointwise(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    hidden = plan.zero.get(node, frozenset())
    followed = [one for one in plan.read(node) if plan.is_followed(one)]
    places = {(plan.along(one).axis - len(plan.shape(one)), plan.along(one)) for one in followed}
    from_the_end, like = next(iter(places))
    if any(place != from_the_end or one.moved(0) != like.moved(0) for place, one in places):
        raise _refuse(node)  # tokens of one operand meet other axes of the other
    size = len(plan.shape(node))
    along = like.moved(size + from_the_end)

    def operand(argument: fx.Node) -> Any:
        if argument in hidden:
            shape = plan.shape(argument)
            axis = len(shape) + from_the_end
            whole = axis < 0 or shape[axis] == 1
            return Zeros(shape if whole else like.moved(axis).shape(shape, plan.sizes.chosen))
        return argument if plan.is_followed(argument) else plan.constant(argument, from_the_end, like)

    args, kwargs = map_nodes(node.args, operand), map_nodes(node.kwargs, operand)
    return Step(node, node.target, args, kwargs), along  # type: ignore[arg-type]


# -- one operand, and other axes than that of the tokens


def _one(plan: Plan, node: fx.Node) -> tuple[fx.Node, Along, tuple[int, ...]]:
    """The operand, which alone may depend on the tokens."""
    operand = node.args[0]
    if not isinstance(operand, fx.Node) or [one for one in plan.read(node) if plan.is_followed(one)] != [operand]:
        raise RefusedError(f"{operations.display(node)} depends on tokens in more than its first operand")
    return operand, plan.along(operand), plan.shape(operand)


def _same_call(plan: Plan, node: fx.Node) -> Step:
    def operand(argument: fx.Node) -> Any:
        return argument if plan.is_followed(argument) else plan.constant(argument)

    args, kwargs = map_nodes(node.args, operand), map_nodes(node.kwargs, operand)
    return Step(node, node.target, args, kwargs)  # type: ignore[arg-type]


def _axis_kept(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    _, along, shape = _one(plan, node)
    after = plan.shape(node)
    if len(after) <= along.axis or after[along.axis] != shape[along.axis]:
        raise _refuse(node)
    return _same_call(plan, node), along


def _transposed(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    _, along, shape = _one(plan, node)
    size = len(shape)
    order = list(range(size))
    name, options = operations.name(node), given(node)
    if name == "permute":
        order = [_whole(size, axis) for axis in options["dims"]]
    elif name == "transpose":
        a, b = (_whole(size, options[f"dim{i}"]) for i in range(2))
        order[a], order[b] = order[b], order[a]
    elif name == "mT" or (name == "t" and size == 2):
        order[-2:] = order[-1], order[-2]
    elif name in ("T", "numpy_T"):
        order.reverse()
    return _same_call(plan, node), along.moved(order.index(along.axis))


def _reshaped(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    operand, along, shape = _one(plan, node)
    found = along.reshaped(shape, plan.shape(node), plan.sizes.count)
    if found is None:
        raise RefusedError(f"{operations.display(node)} splits the sequence")
    return Step(node, torch.reshape, (operand, plan.cut(node, found))), found


def _expanded(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    operand, along, shape = _one(plan, node)
    found = along.moved(along.axis + len(plan.shape(node)) - len(shape))
    return Step(node, torch.Tensor.expand, (operand, plan.cut(node, found))), found


def _unsqueezed(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    _, along, shape = _one(plan, node)
    at = _whole(len(shape) + 1, given(node)["dim"])
    return _same_call(plan, node), along.moved(along.axis + (at <= along.axis))


def _squeezed(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    operand, along, shape = _one(plan, node)
    dims = given(node).get("dim")
    if dims is None:
        raise _refuse(node)
    gone = {_whole(len(shape), axis) for axis in ([dims] if isinstance(dims, int) else dims)}
    gone = {axis for axis in gone if shape[axis] == 1 and axis != along.axis}
    found = along.moved(along.axis - sum(axis < along.axis for axis in gone))
    return Step(node, torch.reshape, (operand, plan.cut(node, found))), found


def _selected(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    _, along, shape = _one(plan, node)
    axis = _whole(len(shape), given(node)["dim"])
    if axis == along.axis:
        raise RefusedError(f"{operations.display(node)} picks tokens")
    return _same_call(plan, node), along.moved(along.axis - (axis < along.axis))


def _sliced(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    operand, along, shape = _one(plan, node)
    if _whole(len(shape), given(node)["dim"]) != along.axis:
        return _same_call(plan, node), along
    if plan.shape(node) != shape:
        raise RefusedError(f"{operations.display(node)} picks tokens")
    return Step(node, torch.clone, (operand,)), along


def _pieces(plan: Plan, node: fx.Node) -> tuple[Step, list[Along]]:
    """A split into a tuple."""
    _, along, shape = _one(plan, node)
    axis = _whole(len(shape), given(node)["dim"])
    if axis == along.axis:
        raise RefusedError(f"{operations.display(node)} splits the sequence")
    found = along.moved(along.axis - (operations.name(node) == "unbind" and axis < along.axis))
    return _same_call(plan, node), [found] * len(node.meta["val"])


def _item(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    source, place = node.args
    assert isinstance(source, fx.Node) and isinstance(place, int)  # noqa: PT018
    return Step(node, operator.getitem, (source, place)), plan.parts(source)[place]


def _joined(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    """cat and stack, along another axis."""
    followed = [one for one in plan.read(node) if plan.is_followed(one)]
    alongs = {plan.along(one) for one in followed}
    along, size = next(iter(alongs)), len(plan.shape(followed[0]))
    if len(alongs) > 1:
        raise _refuse(node)
    stacks = operations.name(node) == "stack"
    axis = _whole(size + stacks, given(node)["dim"])
    if axis == along.axis and not stacks:
        raise RefusedError(f"{operations.display(node)} joins sequences")

    def operand(argument: fx.Node) -> Any:
        if plan.is_followed(argument):
            return argument
        return plan.constant(argument, along.axis - size, along)

    step = Step(node, node.target, map_nodes(node.args, operand), dict(node.kwargs))  # type: ignore[arg-type]
    return step, along.moved(along.axis + (stacks and axis <= along.axis))


def _repeated(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    _, along, shape = _one(plan, node)
    times = given(node)["repeats"]
    if operations.name(node) == "repeat_interleave":
        dim = given(node)["dim"]
        if dim is None or isinstance(times, fx.Node) or _whole(len(shape), dim) == along.axis:
            raise _refuse(node)
        return _same_call(plan, node), along
    more = len(times) - len(shape)
    if times[along.axis + more] != 1:
        raise _refuse(node)
    return _same_call(plan, node), along.moved(along.axis + more)


def _over_axes(plan: Plan, node: fx.Node) -> tuple[Step, Along | list[Along]]:
    """What collapses, sorts or accumulates along named axes, which are others than that of the tokens."""
    _, along, shape = _one(plan, node)
    options = given(node)
    dims = options.get("dim", options.get("dims"))
    if dims is None or dims == []:
        raise _refuse(node)
    axes = {_whole(len(shape), axis) for axis in ([dims] if isinstance(dims, int) else dims)}
    if along.axis in axes:
        raise _refuse(node)
    values = node.meta["val"]
    several = not isinstance(values, Tensor)
    gone = axes if (values[0] if several else values).dim() < len(shape) else set()
    found = along.moved(along.axis - sum(axis < along.axis for axis in gone))
    return _same_call(plan, node), [found] * len(values) if several else found


def _layer_norm(plan: Plan, node: fx.Node) -> tuple[Step, Along | list[Along]]:
    _, along, shape = _one(plan, node)
    if along.axis >= len(shape) - len(given(node)["normalized_shape"]):
        raise _refuse(node)
    several = not isinstance(node.meta["val"], Tensor)
    return _same_call(plan, node), [along] * len(node.meta["val"]) if several else along


def _names(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Mapping[str, Rule] = {
    **_names(_axis_kept, "clone alias contiguous detach _to_copy to view_as_complex view_as_real real imag"),
    **_names(_transposed, "permute transpose t T mT numpy_T adjoint"),
    **_names(_reshaped, "view reshape _unsafe_view view_copy flatten unflatten"),
    **_names(_expanded, "expand expand_copy broadcast_to"),
    **_names(_unsqueezed, "unsqueeze"),
    **_names(_squeezed, "squeeze squeeze_copy"),
    **_names(_selected, "select"),
    **_names(_sliced, "slice slice_copy narrow"),
    **_names(_pieces, "split split_with_sizes unbind chunk"),
    **_names(_item, "getitem"),
    **_names(_joined, "cat concat stack"),
    **_names(_repeated, "repeat repeat_interleave"),
    **_names(
        _over_axes,
        "mean sum var std var_mean std_mean amax amin max min prod norm linalg_vector_norm logsumexp softmax _softmax "
        "log_softmax _log_softmax argmax argmin any all topk sort _safe_softmax cumsum flip roll",
    ),
    **_names(_layer_norm, "layer_norm native_layer_norm rms_norm _fused_rms_norm"),
}
KINDS: Mapping[str, Rule] = {"pointwise": _pointwise}


def planned(plan: Plan, nodes: Sequence[fx.Node], exit_: fx.Node, axis: int) -> Plan:
    """The plan with the steps of all nodes that depend on the entry. axis: that the exit's tokens should have."""
    for node in nodes:
        if any(plan.is_followed(argument) for argument in plan.read(node)):
            plan.add(*step_of(plan, node))
    if not plan.is_followed(exit_) or plan.along(exit_) != Along(axis):
        raise RefusedError("its exit does not hold one state for each token")
    return plan
