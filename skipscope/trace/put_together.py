"""States that stand in parts around their sum, put together so that the sum has a state of its own.

    cat([a, b], 1) + f(a, b)               E + f(E[:, :1], E[:, 1:])   the branch reads the parts of E = cat([a, b], 1)
    cat([y[:, :4] + x, y[:, 4:]], 1)       y + (x, 0)                  the state has fewer channels than the branch
    cat([x[:, :4] + f, x[:, 4:], g], 1)    (x, 0) + (f, 0, g)          some channels are added to, others are new

All are exact: an entry is only read from another place, or added to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.graph_edits import new_node, replace_node, same_tensor, zeros_like
from skipscope.trace.program import Program

aten = torch.ops.aten
END = 2**63 - 1  # of an axis, in a slice
CONCATENATIONS = ("cat", "concat")


def put_together(program: Program) -> bool:
    """Whether there were any."""
    graph = program.graph
    changed = [_read_from_whole(program, node) for node in list(graph.nodes) if operations.name(node) == "add"]
    for node in [node for node in graph.nodes if operations.name(node) in CONCATENATIONS]:
        changed.append(_add_to_wider(graph, node) or _add_to_whole(graph, node))
    if any(changed):
        graph.eliminate_dead_code()
        program.refresh()
    return any(changed)


# -- a state is added to some parts of a wider branch


def _add_to_wider(graph: fx.Graph, node: fx.Node) -> bool:
    """cat([y[:, :c] + x, y[:, c:]]), as where a state has fewer channels than the branch: y + (x, 0)."""
    joined, axis = node.args[0], node.args[1] if len(node.args) > 1 else 0
    parts: list[Any] = [part for part in joined if not _is_empty(part)] if isinstance(joined, list | tuple) else []
    if len(parts) != 2:
        return False
    changed = [i for i, part in enumerate(parts) if operations.name(part) == "add" and not part.kwargs]
    if len(changed) != 1:
        return False
    total: Any = parts[changed[0]]
    rest: Any = parts[1 - changed[0]]
    for cut, added in (total.args[:2], total.args[1::-1]):
        source = _source_of_cuts(cut, rest, axis) if changed[0] == 0 else _source_of_cuts(rest, cut, axis)
        if source is not None and same_tensor(source, node) and same_tensor(added, total):
            with graph.inserting_before(node):
                beside = zeros_like(graph, node, rest)
                both = [added, beside] if changed[0] == 0 else [beside, added]
                padded = new_node(graph, node, aten.cat.default, both, axis)
                replace_node(graph, node, new_node(graph, node, aten.add.Tensor, source, padded))
            return True
    return False


def _is_empty(node: Any) -> bool:
    return any(isinstance(size, int) and size == 0 for size in node.meta["val"].shape)


def _source_of_cuts(first: Any, second: Any, axis: Any) -> fx.Node | None:
    """The tensor that two nodes are the beginning and the rest of along an axis."""
    for cut in (first, second):
        if not isinstance(cut, fx.Node) or operations.name(cut) != "slice" or len(cut.args) != 4:
            return None
    source: Any
    (source, along, start, middle), (other, over, again, end) = first.args, second.args
    dimensions = source.meta["val"].dim()
    same_axis = {along % dimensions, over % dimensions} == {axis % dimensions}
    whole = start == 0 and middle == again and isinstance(end, int) and end >= 2**62
    return source if source is other and same_axis and whole else None


# -- some parts of a state are added to, and others are new


@dataclass(frozen=True)
class _Part:
    """Of a concatenation. kept: where in the state it stands; None for what is new."""

    node: fx.Node
    kept: fx.Node | None = None  # the slice of the state
    added: fx.Node | None = None  # what is added to the slice


def _add_to_whole(graph: fx.Graph, joined: fx.Node) -> bool:
    axis = _axis(joined)
    parts = _parts(joined, axis)
    state = next((p.kept.args[0] for p in parts if p.kept is not None and p.added is not None), None)
    if axis is None or not isinstance(state, fx.Node):
        return False
    parts = [p if p.kept is not None and p.kept.args[0] is state else _Part(p.node) for p in parts]
    places = [i for i, part in enumerate(parts) if part.kept is not None]
    is_run = places == list(range(places[0], places[0] + len(places)))
    if len(places) == len(parts) or not is_run or not _cover(state, [parts[i].kept for i in places], axis):
        return False
    like = next(part.node for part in parts if part.added is not None)
    with graph.inserting_before(joined):
        old = [zeros_like(graph, like, part.node) for part in parts if part.kept is None]
        old.insert(places[0], state)
        new = [part.node if part.kept is None else part.added or zeros_like(graph, like, part.node) for part in parts]
        skip, branch = (new_node(graph, like, aten.cat.default, terms, axis) for terms in (old, new))
        total = new_node(graph, like, aten.add.Tensor, skip, branch)
    replace_node(graph, joined, total)
    _read_later_uses_from(graph, total, [part.node for part in parts], axis)
    return True


def _parts(node: fx.Node, axis: int | None) -> list[_Part]:
    """Of a concatenation, and of those in it along the same axis."""
    found: list[_Part] = []
    joined: Any = node.args[0]
    for part in joined if isinstance(joined, list | tuple) else ():
        if operations.name(part) in CONCATENATIONS and _axis(part) == axis:
            found += _parts(part, axis)
        elif operations.name(part) == "slice":
            found.append(_Part(part, kept=part))
        elif operations.name(part) == "add" and not part.kwargs:
            found.append(_changed(part))
        else:
            found.append(_Part(part))
    return found


def _changed(total: fx.Node) -> _Part:
    for kept, added in (total.args[:2], total.args[1::-1]):
        is_slice = isinstance(kept, fx.Node) and operations.name(kept) == "slice"
        if is_slice and same_tensor(kept, total) and same_tensor(added, total):
            return _Part(total, kept, added)  # type: ignore[arg-type]
    return _Part(total)


def _cover(state: fx.Node, slices: list[Any], axis: int) -> bool:
    """Are these slices all of the state, in order?"""
    at, dimensions = 0, state.meta["val"].dim()
    for some in slices:
        along, start, *_ = some.args[1:3]
        size = some.meta["val"].shape[axis]
        if along % dimensions != axis or len(some.args) > 4 or start != at or not isinstance(size, int):
            return False
        at += size
    return bool(at == state.meta["val"].shape[axis])


def _read_later_uses_from(graph: fx.Graph, whole: fx.Node, parts: list[fx.Node], axis: int) -> None:
    """Who uses a part, or several that follow each other, after the whole is there takes them out of it."""
    at = 0
    ends: dict[fx.Node, tuple[int, int]] = {}
    for part in parts:
        ends[part] = at, at + part.meta["val"].shape[axis]
        at = ends[part][1]
    for part in parts:
        for user in [user for user in part.users if operations.name(user) in CONCATENATIONS and _axis(user) == axis]:
            joined: Any = user.args[0]
            if all(some in ends for some in joined) and _follow(parts, list(joined)):
                ends[user] = ends[joined[0]][0], ends[joined[-1]][1]
    for part, (start, end) in ends.items():
        later = [user for user in part.users if whole < user]
        if later and part is not whole:
            with graph.inserting_after(whole):
                read = new_node(graph, whole, aten.slice.Tensor, whole, axis, start, end)
            for user in later:
                user.replace_input_with(part, read)


def _follow(parts: list[fx.Node], some: list[fx.Node]) -> bool:
    start = parts.index(some[0])
    return parts[start : start + len(some)] == some


# -- the branch reads the parts of the state that it is added to


def _read_from_whole(program: Program, total: fx.Node) -> bool:
    if total.kwargs:
        return False
    for whole, change in (total.args[:2], total.args[1::-1]):
        if same_tensor(whole, total) and same_tensor(change, total) and _is_joined_for(program, total, whole):
            return _read(program, whole, change)  # type: ignore[arg-type]
    return False


def _is_joined_for(program: Program, total: fx.Node, whole: Any) -> bool:
    """Is a value a concatenation that this sum alone uses, along an axis that is not the batch's?"""
    if operations.name(whole) not in CONCATENATIONS or set(whole.users) != {total}:
        return False
    return _axis(whole) is not None and program.batch_axis(whole) not in (None, _axis(whole))


def _read(program: Program, whole: fx.Node, change: fx.Node) -> bool:
    graph, axis = program.graph, _axis(whole)
    joined: Any = whole.args[0]
    parts = list(joined)
    if axis is None or len(set(parts)) < len(parts) or not all(_is_state(program, part) for part in parts):
        return False
    before = _ancestors(change)
    readers = {part: [user for user in part.users if user in before] for part in parts}
    last = max(parts)  # in the order of the graph
    if not all(readers.values()) or any(user < last for users in readers.values() for user in users):
        return False
    last.append(whole)
    at, place = 0, whole
    for part in parts:
        size = part.meta["val"].shape[axis]
        with graph.inserting_after(place):
            place = new_node(graph, whole, aten.slice.Tensor, whole, axis, at, at + size)
        for user in readers[part]:
            user.replace_input_with(part, place)
        at += size
    return True


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found, waiting = {node}, [node]
    while waiting:
        for argument in waiting.pop().all_input_nodes:
            if argument not in found:
                found.add(argument)
                waiting.append(argument)
    return found


def _is_state(program: Program, node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, fx.Node) and node.op == "call_function" else None
    return isinstance(value, Tensor) and value.is_floating_point() and program.batch_axis(node) is not None


def _axis(joined: fx.Node) -> int | None:
    axis: Any = joined.args[1] if len(joined.args) > 1 else joined.kwargs.get("dim", 0)
    value = joined.meta.get("val")
    return axis % value.dim() if isinstance(axis, int) and isinstance(value, Tensor) else None
