"""Small changes of an exported graph, with the shapes of what is new."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from skipscope.trace import operations


def same_tensor(a: Any, b: Any) -> bool:
    """Do two nodes hold tensors of one shape, type and device?"""
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node) or not operations.same_shape(a, b):
        return False
    before, after = a.meta["val"], b.meta["val"]
    return bool(before.dtype == after.dtype and before.device == after.device)


def new_node(graph: fx.Graph, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A node before `like`, in the same module, with the shape that its own arguments give it."""
    node = graph.call_function(target, args, kwargs)
    node.meta = dict(like.meta)
    values = fx.node.map_arg((args, kwargs), lambda argument: argument.meta["val"])
    fake = next(v for v in torch.utils._pytree.tree_leaves(values) if hasattr(v, "fake_mode"))
    with fake.fake_mode, torch.no_grad():
        node.meta["val"] = target(*values[0], **values[1])
    return node


def zeros_like(graph: fx.Graph, like: fx.Node, source: fx.Node) -> fx.Node:
    """Zeros in the shape of a source, made when they are read: the source is no value that they use."""
    zeros = new_node(graph, like, torch.ops.aten.zeros_like.default, source)
    zeros.args = ()
    return zeros


def replace_node(graph: fx.Graph, node: fx.Node, new: Any) -> None:
    node.replace_all_uses_with(new)
    graph.erase_node(node)
