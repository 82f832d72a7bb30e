"""The tail of a unit: what is done to the sum before it is the next unit's entry.

A run of pointwise, norm or layout operations, each feeding only the next. Inside the innermost module that executed
the sum it is the tail as it stands (the last ReLU of a ResNet block, the norm of a post-norm transformer), except
where the module goes on after its last unit (a final norm in a flat loop): there its sister units decide. Where a
module ends with its sum, the run that separates sum and next entry in most of the units is taken
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
    runs = [run_after(flow, region) for region in regions]
    inside = [_within(calls, region, run) for region, run in zip(regions, runs, strict=True)]
    tails: list[Run] = []
    for i, region in enumerate(regions):
        call = calls.of(region.end)
        sisters = [_signature(inside[k]) for k, other in enumerate(regions) if k != i and calls.of(other.end) == call]
        tails.append(_agreed(inside[i], sisters) if sisters else _without_layout_end(inside[i]))
    between = [_up_to_next(calls, regions, i, run) for i, run in enumerate(runs)]
    entries = {region.entry for region in regions}
    # A run that leads to no other unit's entry says nothing about what separates units: the last unit has no vote.
    votes = [run for run, tail in zip(between, tails, strict=True) if not tail and (not run or run[-1] in entries)]
    if usual := _usual(votes):
        tails = [tail or _starting_with(run, usual) for run, tail in zip(between, tails, strict=True)]
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


def _agreed(run: Run, sisters: Sequence[Signature]) -> Run:
    """The longest tail of a sister unit that the run starts with; the whole run if none has one."""
    if _signature(run) in sisters:
        return _without_layout_end(run)
    common = [_starting_with(run, signature) for signature in sisters]
    return _without_layout_end(max(common, key=len))


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
