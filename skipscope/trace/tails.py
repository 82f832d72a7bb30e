"""The tail of a unit: what is done to the sum before it is the next unit's entry.

A run of pointwise, norm or layout operations, each feeding only the next (or several that make one, written by hand:
z * (z > 0)), and none of them executed by a module around another unit (a pre-norm is part of the next branch). Inside
the innermost module that executed the sum the run is the tail where it leads to the next entry (the last ReLU of a
ResNet block, the norm of a post-norm transformer) or where the module holds no other unit; where it leads elsewhere (to
a norm after the last layer, a final norm in a flat loop) the tails of the units at the same place in other blocks
decide, and if there are none those of the other units in the module.
Where a module ends with its sum, the run that separates sum and next entry in most of the units is taken
(`Sequential(Residual, ReLU)`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Call, Calls, Flow
from skipscope.trace.region import Region

Run = list[fx.Node]
Signature = tuple[str, ...]


def find_tails(flow: Flow, calls: Calls, regions: Sequence[Region]) -> list[Run]:
    """The tail of each region, in order; an empty list where a unit ends with its sum."""
    entries = {region.entry for region in regions}
    ends = {key for region in regions for key in calls.of(region.end)}
    runs = [_up_to_next(calls, region, ends, run_after(flow, region)) for region in regions]
    inside = [_within(calls, region, run) for region, run in zip(regions, runs, strict=True)]
    leads = [
        region.end in entries or (bool(run) and run[-1] in entries) for region, run in zip(regions, inside, strict=True)
    ]
    tails: list[Run] = []
    in_call: dict[Call, list[int]] = {}
    for i, region in enumerate(regions):
        in_call.setdefault(calls.of(region.end), []).append(i)
    as_others = _as_in_other_blocks(calls, regions, in_call, inside, leads)
    for i, region in enumerate(regions):
        if i in as_others:
            tails.append(as_others[i])
            continue
        others = [k for k in in_call[calls.of(region.end)] if k != i]
        sisters = [k for k in others if not region.holds(regions[k]) and not regions[k].holds(region)]
        known = {_signature(_without_layout_end(inside[k])) for k in sisters if leads[k]}
        if leads[i] or not known:
            tails.append(_without_layout_end(inside[i]))
        else:
            tails.append(max((_starting_with(inside[i], signature) for signature in known), key=len))
    # A run that leads to no other unit's entry says nothing about what separates units: the last unit has no vote.
    votes = [run for run, tail in zip(runs, tails, strict=True) if not tail and (not run or run[-1] in entries)]
    if usual := _usual(votes):
        tails = [tail or _starting_with(run, usual) for run, tail in zip(runs, tails, strict=True)]
    return [_closed(region, tail) for region, tail in zip(regions, tails, strict=True)]


def _as_in_other_blocks(
    calls: Calls,
    regions: Sequence[Region],
    in_call: Mapping[Call, Sequence[int]],
    inside: Sequence[Run],
    leads: Sequence[bool],
) -> dict[int, Run]:
    """For units that do not lead to another's entry the tail of those at the same place of other blocks that do."""
    places: dict[int, tuple[str, int]] = {}  # which sum of which module; blocks of a list differ in their number alone
    for units in in_call.values():
        for number, i in enumerate(units):
            places[i] = re.sub(r"\d+", "#", calls.path(regions[i].end)), number
    known: dict[tuple[str, int], set[Signature]] = {}
    for i in (i for i, certain in enumerate(leads) if certain):
        known.setdefault(places[i], set()).add(_signature(_without_layout_end(inside[i])))
    found: dict[int, Run] = {}
    for i in (i for i, certain in enumerate(leads) if not certain):
        signatures = known.get(places[i], set())
        if len(signatures) == 1 and (run := _starting_with(inside[i], *signatures)):
            found[i] = run
    return found


def _closed(region: Region, tail: Run) -> Run:
    """The longest part of which only the last value is used: a cut does not fall inside what belongs together."""
    for length in range(len(tail), 0, -1):
        part = set(tail[:length])
        if all(user in part for node in (region.end, *tail[: length - 1]) for user in node.users):
            return tail[:length]
    return []


def run_after(flow: Flow, region: Region) -> Run:
    """The run of pointwise, norm and layout operations after a sum, and of such operations written by hand."""
    run: Run = []
    node = region.end
    while step := _next(flow, node) or _by_hand(flow, node):
        run += step
        node = step[-1]
    return run


def _next(flow: Flow, node: fx.Node) -> Run:
    """The one operation that a value goes on to."""
    if len(node.users) != 1:
        return []
    (user,) = node.users
    if user.op == "output" or not flow.on_path(user) or len(flow.predecessors[user]) != 1:
        return []
    return [user] if operations.kind(user) in ("pointwise", "norm", "layout") else []


def _by_hand(flow: Flow, node: fx.Node) -> Run:
    """Several operations on one value that end in one of its shape: z * (z > 0), z / z.norm(). Nothing else flows in
    that comes from the inputs, and nothing is used outside."""
    if not isinstance(node.meta.get("val"), Tensor):
        return []
    members: list[fx.Node] = []
    waiting = set(node.users)
    while waiting:
        user = min(waiting, key=lambda n: flow.position.get(n, len(flow.position)))
        waiting.remove(user)
        if user.op == "output" or operations.kind(user) not in ("pointwise", "norm", "layout", "reduce"):
            return []
        if any(n is not node and n not in members and n in flow.from_inputs for n in user.all_input_nodes):
            return []
        members.append(user)
        if not waiting and flow.on_path(user) and operations.same_shape(node, user):
            return members if operations.kind(user) in ("pointwise", "norm") else []
        waiting |= set(user.users)
    return []


def _within(calls: Calls, region: Region, run: Run) -> Run:
    """The part of the run that the innermost module around the sum executed, itself or through its children."""
    call = calls.of(region.end)
    inside: Run = []
    for node in run:
        if calls.of(node)[: len(call)] != call:
            break
        inside.append(node)
    return inside


def _up_to_next(calls: Calls, region: Region, ends: Collection[str], run: Run) -> Run:
    """The run before the first operation that a module around another unit executed: that is the other's own.
    ends: the calls that the ends of all units are in."""
    own = set(calls.of(region.end))
    for i, node in enumerate(run):
        if any(key in ends and key not in own for key in calls.of(node)):
            return run[:i]
    return run


def _starting_with(run: Run, signature: Signature) -> Run:
    return run[: len(signature)] if _signature(run)[: len(signature)] == signature else []


def _usual(runs: Sequence[Run]) -> Signature:
    """The signature of most runs; empty when most are empty or they differ."""
    counts = Counter(_signature(_without_layout_end(run)) for run in runs)
    if not counts:
        return ()
    signature, count = counts.most_common(1)[0]
    return signature if 2 * count > len(runs) else ()


def _without_layout_end(run: Run) -> Run:
    while run and operations.kind(run[-1]) == "layout" and operations.name(run[-1]) != "getitem":
        run = run[:-1]
    return run


def _signature(run: Run) -> Signature:
    return tuple(operations.name(node) for node in run)
