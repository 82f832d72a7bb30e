"""Small changes of an exported graph, with the shapes of what is new."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from skipscope.trace import operations

OURS = "joined by skipscope"  # in the meta of a concatenation that the model's code does not have


def same_tensor(a: Any, b: Any) -> bool:
    """Do two nodes hold tensors of one shape, type and device?"""
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node) or not operations.same_shape(a, b):
        return False
    before, after = a.meta["val"], b.meta["val"]
    return bool(before.dtype == after.dtype and before.device == after.device)


def new_node(graph: fx.Graph, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A node before `like`, in the same module, with the shape that its own arguments give it."""
    node = same_value(graph, like, target, *args, **kwargs)
    values = fx.node.map_arg((args, kwargs), lambda argument: argument.meta["val"])
    fake = next(v for v in torch.utils._pytree.tree_leaves(values) if hasattr(v, "fake_mode"))
    with fake.fake_mode, torch.no_grad():
        node.meta["val"] = target(*values[0], **values[1])
    return node


def same_value(graph: fx.Graph, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A node before `like`, in the same module, whose value has the shape and type of that of `like`: nothing has to be
    computed to know it."""
    node = graph.call_function(target, args, kwargs)
    node.meta = dict(like.meta)
    return node


def zeros_like(graph: fx.Graph, like: fx.Node, source: fx.Node) -> fx.Node:
    return filled_like(graph, like, source, torch.ops.aten.zeros_like.default)


def filled_like(graph: fx.Graph, like: fx.Node, source: fx.Node, target: Any) -> fx.Node:
    """Zeros or ones in the shape of a source, made when they are read: the source is no value that they use."""
    node = graph.call_function(target, (source,))
    node.meta = dict(like.meta)
    with source.meta["val"].fake_mode, torch.no_grad():
        node.meta["val"] = target(source.meta["val"])
    node.args = ()
    return node


def replace_node(graph: fx.Graph, node: fx.Node, new: Any) -> None:
    node.replace_all_uses_with(new)
    graph.erase_node(node)
