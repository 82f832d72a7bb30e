"""The tail of a unit: what is done to the sum before it is the next unit's entry.

A run of pointwise, norm or layout operations, each feeding only the next and none of them executed by a module around
another unit (a pre-norm is part of the next branch). Inside the innermost module that executed the sum the run is the
tail where it leads to the next entry (the last ReLU of a ResNet block, the norm of a post-norm transformer) or where
the module holds no other unit; where it leads elsewhere (a final norm in a flat loop) the tails of the other units
decide.
Where a module ends with its sum, the run that separates sum and next entry in most of the units is taken
(`Sequential(Residual, ReLU)`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import fx

from skipscope.trace import operations
from skipscope.trace.flow import Flow
from skipscope.trace.modules import Calls
from skipscope.trace.rule import Region

Run = list[fx.Node]
Signature = tuple[str, ...]


def find_tails(flow: Flow, calls: Calls, regions: Sequence[Region]) -> list[Run]:
    """The tail of each region, in order; an empty list where a unit ends with its sum."""
    entries = {region.entry for region in regions}
    runs = [_up_to_next(calls, regions, i, run_after(flow, region)) for i, region in enumerate(regions)]
    inside = [_within(calls, region, run) for region, run in zip(regions, runs, strict=True)]
    leads = [
        region.end in entries or (bool(run) and run[-1] in entries) for region, run in zip(regions, inside, strict=True)
    ]
    tails: list[Run] = []
    for i, region in enumerate(regions):
        call = calls.of(region.end)
        others = [
            k for k, other in enumerate(regions) if k != i and not region.holds(other) and not other.holds(region)
        ]
        sisters = [k for k in others if calls.of(regions[k].end) == call]
        known = {_signature(_without_layout_end(inside[k])) for k in sisters if leads[k]}
        if leads[i] or not known:
            tails.append(_without_layout_end(inside[i]))
        else:
            tails.append(max((_starting_with(inside[i], signature) for signature in known), key=len))
    # A run that leads to no other unit's entry says nothing about what separates units: the last unit has no vote.
    votes = [run for run, tail in zip(runs, tails, strict=True) if not tail and (not run or run[-1] in entries)]
    if usual := _usual(votes):
        tails = [tail or _starting_with(run, usual) for run, tail in zip(runs, tails, strict=True)]
    return tails


def run_after(flow: Flow, region: Region) -> Run:
    """The run of pointwise, norm and layout operations after a sum."""
    run: Run = []
    node = region.end
    while len(node.users) == 1:
        (node,) = node.users
        if node.op == "output" or not flow.on_path(node) or len(flow.predecessors[node]) != 1:
            break
        if operations.kind(node) not in ("pointwise", "norm", "layout"):
            break
        run.append(node)
    return run


def _within(calls: Calls, region: Region, run: Run) -> Run:
    """The part of the run that the innermost module around the sum executed, itself or through its children."""
    call = calls.of(region.end)
    inside: Run = []
    for node in run:
        if calls.of(node)[: len(call)] != call:
            break
        inside.append(node)
    return inside


def _up_to_next(calls: Calls, regions: Sequence[Region], unit: int, run: Run) -> Run:
    """The run before the first operation that a module around another unit executed: that is the other's own."""
    own = set(calls.of(regions[unit].end))
    others = {key for region in regions for key in calls.of(region.end)} - own
    for i, node in enumerate(run):
        if others & set(calls.of(node)):
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
