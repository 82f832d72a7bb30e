"""Writing in place through a view of a tensor, as values: mask[:2, 3:] = 1, rows[0].zero_(), x[:] += y.

What is written goes into a copy of the tensor, which all later uses then read:

    v = slice(t, 0, 0, 2);  fill_(v, 1)    v' = fill(v, 1);  t' = slice_scatter(t, v', 0, 0, 2)

Only where nothing else can tell: the tensor was made in the graph, and no other view of it, from before the writing, is
used afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
SCATTERS: dict[Any, Any] = {aten.slice.Tensor: aten.slice_scatter.default, aten.select.int: aten.select_scatter.default}
WHOLE = (aten.alias.default, aten.detach.default)  # the tensor itself under another name
Test = Callable[[fx.Node], bool]


def without_writing_through_views(
    graph: fx.Graph, writes: Test, is_new: Test, functional: Callable[[fx.Node], Any]
) -> None:
    """functional: the operation that computes what an operation in place writes; None if there is none."""
    position = {node: i for i, node in enumerate(graph.nodes)}

    def aliases(node: fx.Node) -> bool:
        return node.op == "call_function" and not is_new(node)

    for node in [node for node in graph.nodes if node.op == "call_function" and writes(node)]:
        chain = _chain(node.args[0], aliases)
        if len(chain) == 1 or not is_new(chain[-1]) or (target := functional(node)) is None:
            continue
        views = _all_views(chain[-1], aliases)
        later = {n: [user for user in n.users if position[user] > position[node]] for n in views}
        others = [n for n in views if n not in chain and n is not node and position[n] < position[node]]
        if any(later[other] for other in others) or not _can_be_put_back(chain, later):
            continue
        # What is read from a view after this must not see another writing, which would go to the copy.
        again = [n for n in views if writes(n) and position[n] > position[node]]
        until = min((position[n] for n in again), default=len(position))
        read = [(n, user) for n in (*chain[:-1], node) for user in later.get(n, ())]
        if any(position[user] > until or (aliases(user) and user.args[0] is n) for n, user in read):
            continue
        node.target = target
        _put_back(graph, node, chain, later, position)


def _chain(node: Any, aliases: Test) -> list[fx.Node]:
    """A view, what it is a view of, and so on, down to the tensor that was made."""
    chain = [node]
    while aliases(chain[-1]) and isinstance(chain[-1].args[0], fx.Node):
        chain.append(chain[-1].args[0])
    return chain


def _all_views(base: fx.Node, aliases: Test) -> set[fx.Node]:
    """The tensor and all that may share its memory."""
    found, waiting = {base}, [base]
    while waiting:
        for user in waiting.pop().users:
            if user not in found and aliases(user):
                found.add(user)
                waiting.append(user)
    return found


def _can_be_put_back(chain: list[fx.Node], later: dict[fx.Node, list[fx.Node]]) -> bool:
    """Is there a way to write each view into what it is a view of, as far as that is used again?"""
    needed = max((i for i, node in enumerate(chain) if later.get(node)), default=0)
    return all(view.target in SCATTERS or view.target in WHOLE for view in chain[:needed])


def _put_back(
    graph: fx.Graph,
    node: fx.Node,
    chain: list[fx.Node],
    later: dict[fx.Node, list[fx.Node]],
    position: dict[fx.Node, int],
) -> None:
    new = last = node
    needed = max((i for i, some in enumerate(chain) if later.get(some)), default=0)
    for level, old in enumerate(chain[: needed + 1]):
        if level > 0:
            view = chain[level - 1]
            if view.target not in WHOLE:
                with graph.inserting_after(last):
                    new = graph.call_function(SCATTERS[view.target], (old, new, *view.args[1:]))
                new.meta = dict(node.meta)
                new.meta["val"] = old.meta["val"]
                position[new] = position[node]
                last = new
        for user in later.get(old, ()):
            user.replace_input_with(old, new)
