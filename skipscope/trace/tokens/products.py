"""Rules of matrix products: with weights they act on each token, of two tensors of tokens they are attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.tokens import attention
from skipscope.trace.tokens.along import Along
from skipscope.trace.tokens.plan import PLACES, Mixing, Plan, RefusedError, Step, map_nodes

Rule = Callable[[Plan, fx.Node], tuple[Step, Along]]


def _refuse(node: fx.Node) -> RefusedError:
    return RefusedError(f"{operations.display(node)} mixes tokens in a way that is not attention")


def _linear(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    operand = node.args[0]
    assert isinstance(operand, fx.Node)
    if [one for one in plan.read(node) if plan.is_followed(one)] != [operand]:
        raise _refuse(node)
    along = plan.along(operand)
    if along.axis == len(plan.shape(operand)) - 1:
        raise _refuse(node)
    rest, kwargs = (map_nodes(some, plan.constant) for some in (node.args[1:], node.kwargs))
    return Step(node, node.target, (operand, *rest), kwargs), along  # type: ignore[arg-type]


def _product(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    left, right = node.args[:2]
    assert isinstance(left, fx.Node) and isinstance(right, fx.Node)  # noqa: PT018
    target, operands, along = _of_pair(plan, node, left, right)
    return Step(node, target, operands), along


def _product_with_sum(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    """addmm and baddbmm: beta x + alpha left right."""
    added, left, right = node.args[:3]
    assert isinstance(added, fx.Node) and isinstance(left, fx.Node) and isinstance(right, fx.Node)  # noqa: PT018
    target, operands, along = _of_pair(plan, node, left, right)
    factors: Any = [node.kwargs.get(name, 1) for name in ("beta", "alpha")]
    beta, alpha = factors
    from_the_end = along.axis - len(plan.shape(node))
    if plan.is_followed(added):
        if (
            plan.along(added).moved(along.axis) != along
            or len(plan.shape(added)) + from_the_end != plan.along(added).axis
        ):
            raise _refuse(node)
        first: Any = added
    else:
        first = plan.constant(added, from_the_end, along)

    def both(x: Tensor, *operands: Any) -> Tensor:
        product: Tensor = target(*operands)
        return alpha * product if beta == 0 else beta * x + alpha * product

    return Step(node, both, (first, *operands)), along


def _of_pair(
    plan: Plan, node: fx.Node, left: fx.Node, right: fx.Node
) -> tuple[Callable[..., Tensor], tuple[Any, ...], Along]:
    """The product of two tensors, of which at least one is followed; both have two axes or more."""
    sizes = len(plan.shape(left)), len(plan.shape(right))
    if min(sizes) < 2:
        raise _refuse(node)
    size = max(sizes)
    own, other = (plan.along(one) if plan.is_followed(one) else None for one in (left, right))
    places = [None if one is None else one.axis - of for one, of in zip((own, other), sizes, strict=True)]
    if other is None or own is None:
        along = own if own is not None else other
        place = places[0] if own is not None else places[1]
        assert along is not None and place is not None  # noqa: PT018
        if place == (-1 if own is not None else -2):
            raise _refuse(node)  # summed over tokens, with weights or other constants
        operands: list[Any] = [left, right]
        if own is None:
            operands[0] = plan.constant(left, place if place < -2 else None, along)
        else:
            operands[1] = plan.constant(right, place if place < -2 else None, along)
        return torch.matmul, tuple(operands), along.moved(size + place)
    if places[0] == places[1] and places[0] is not None and places[0] < -2 and own.moved(0) == other.moved(0):
        return torch.matmul, (left, right), own.moved(size + places[0])  # for each token apart
    if places[0] != -2 or places[1] not in (-1, -2) or not own.is_plain:
        raise _refuse(node)
    if places[1] == -1:
        plan.mix(node, Mixing(node, "later"))
        return attention.columns, (left, *plan.filled(right), PLACES), own.moved(size - 2)
    if plan.shape(left)[-1] != plan.sizes.count:
        raise _refuse(node)
    plan.mix(node, Mixing(left, "weights"))
    return attention.contracted, (left, *plan.filled(right), PLACES), own.moved(size - 2)


def _attention(plan: Plan, node: fx.Node) -> tuple[Step, Along]:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    options: dict[str, Any] = {
        "attn_mask": None,
        "dropout_p": 0.0,
        "is_causal": False,
        "scale": None,
        "enable_gqa": False,
        **dict(zip(names, node.args, strict=False)),
        **node.kwargs,
    }
    query, key, value, mask = (options[name] for name in names[:4])
    if options["dropout_p"] or plan.is_followed(mask):
        raise RefusedError("attention with dropout, or with a mask that depends on the tokens")
    along = Along(len(plan.shape(query)) - 2)
    if any(plan.is_followed(one) and plan.along(one) != Along(len(plan.shape(one)) - 2) for one in (query, key, value)):
        raise _refuse(node)
    if not plan.is_followed(query) and plan.shape(query)[-2] != plan.sizes.count:
        raise RefusedError("the queries of attention are another sequence")
    rows = query if plan.is_followed(query) else plan.constant(query, -2)
    pairs = [plan.filled(one) if plan.is_followed(one) else (plan.constant(one), None) for one in (key, value)]
    if plan.is_followed(key) or plan.is_followed(value):
        if mask is None and options["is_causal"]:
            plan.mix(node, Mixing(None, "causal"))
        else:
            plan.mix(node, Mixing(mask, "everything" if mask is None else "mask"))
    if options["is_causal"]:
        if plan.shape(key)[-2] != plan.sizes.count:
            raise _refuse(node)
        target: Callable[..., Tensor] = attention.causal_attention
        return Step(node, target, (rows, *pairs, options["scale"], options["enable_gqa"], PLACES)), along
    given_mask = None if mask is None else plan.constant(mask, -2)
    args = (rows, *pairs, given_mask, options["scale"], options["enable_gqa"], PLACES)
    return Step(node, attention.attention, args), along


PRODUCTS: Mapping[str, Rule] = {
    "linear": _linear,
    **dict.fromkeys(("mm", "bmm", "matmul"), _product),
    **dict.fromkeys(("addmm", "baddbmm"), _product_with_sum),
    "scaled_dot_product_attention": _attention,
}
