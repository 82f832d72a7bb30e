"""Values inside a unit that are used outside of it, and whether that undoes the unit.

A unit's sum must be what the rest of the model gets from it. Other uses of a value inside are

- side outputs: they lead to no sum of the trunk, only to outputs beside the main one (attention maps, router logits,
  auxiliary heads), or to indices;
- contexts of other units: they enter the model again inside another unit's branch (the values of the first layer that
  all later ones read, the velocity of a momentum network, an attention that two streams share);
- collected: they lead to a sum that takes something from several units that follow each other, beside the trunk
  (WaveNet's skips, the forecasts of N-BEATS, the second stream of ResiDual).

Anything else that reaches the main output goes around the unit's sum: then the unit is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from torch import fx

from skipscope.trace import operations
from skipscope.trace.flow import Flow
from skipscope.trace.region import Region

Root = Callable[[fx.Node], fx.Node | None]  # the whole sum that a node is a partial sum of; None for any other node


def leaks(flow: Flow, region: Region) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Values inside, up to the sum, with their users outside.

    Whoever may read the entry may read it after a norm, an activation or a pooling: only what a weight matrix, a
    convolution or attention has made of it belongs to the unit alone.
    """
    read = {region.entry}
    for node in flow.unmask(region.nodes & ~flow.bit(region.end)):
        if operations.kind(node) != "mix" and read.issuperset(flow.predecessors[node]):
            read.add(node)
            continue
        for user in flow.successors[node]:
            if not flow.bit(user) & region.nodes:
                yield node, user


def goes_around(flow: Flow, region: Region) -> fx.Node | None:
    """The first value inside with a way to the main output that avoids the sum."""
    main = flow.bit(flow.sink) if flow.sink is not None else 0
    # A user outside is no ancestor of the sum: whatever it reaches, it reaches without the sum.
    return next((node for node, user in leaks(flow, region) if flow.descendants[user] & main), None)


def side_outputs(flow: Flow, region: Region) -> list[fx.Node]:
    """Values inside that are used outside, or returned."""
    used = {node for node, _ in leaks(flow, region)}
    returned = {leaf for leaf in flow.program.outputs if isinstance(leaf, fx.Node)} - {region.end}
    return [node for node in flow.unmask(region.nodes) if node in used or node in returned]


def harmless(
    flow: Flow, doubtful: dict[fx.Node, Region], sure: dict[fx.Node, Region], root: Root
) -> tuple[dict[fx.Node, Region], set[fx.Node]]:
    """Those doubtful units, by their sums, from which all that goes around the sum is a context or collected, and the
    sums that collect."""
    kept, collecting = dict(doubtful), set[fx.Node]()
    while kept:
        collecting = _Ways(flow, [*sure.values(), *kept.values()], root).collecting(kept.values())
        units = [region for end, region in (sure | kept).items() if root(end) not in collecting]
        ways = _Ways(flow, units, root)
        left = {
            end: region
            for end, region in kept.items()
            if root(end) not in collecting and not ways.reaches_main(region, collecting)
        }
        if len(left) == len(kept):
            break
        kept = left
    return kept, collecting if kept else set()


class _Ways:
    """Walks from leaks on, until they enter another unit's branch."""

    def __init__(self, flow: Flow, regions: Collection[Region], root: Root) -> None:
        self._flow, self._regions, self._root = flow, regions, root

    def collecting(self, regions: Collection[Region]) -> set[fx.Node]:
        """Sums that leaks of several units lead to, of which one follows the other."""
        ending: dict[fx.Node, list[Region]] = {}
        for region in regions:
            for total in {root for node in self._walk(region) if (root := self._root(node)) is not None}:
                ending.setdefault(total, []).append(region)
        return {
            total
            for total, found in ending.items()
            if any(self._flow.ancestors[b.entry] & self._flow.bit(a.end) for a in found for b in found)
        }

    def reaches_main(self, region: Region, collecting: set[fx.Node]) -> bool:
        return any(node is self._flow.sink for node in self._walk(region, collecting))

    def _walk(self, region: Region, collecting: set[fx.Node] | None = None) -> Iterator[fx.Node]:
        """collecting: sums at which a way ends; None: all sums."""
        flow = self._flow
        others = [other for other in self._regions if other is not region and not other.holds(region)]
        shared = collecting is not None  # a sum that collects from a unit shares the nodes before the leak with it
        seen: set[fx.Node] = set()
        waiting = list(leaks(flow, region))
        while waiting:
            before, node = waiting.pop()
            if self._enters(others, before, node, shared) or node in seen:
                continue
            seen.add(node)
            yield node
            root = self._root(node)
            if root is None if collecting is None else root not in collecting:
                waiting += [(node, user) for user in flow.successors[node]]

    def _enters(self, others: Collection[Region], before: fx.Node, node: fx.Node, shared: bool) -> bool:
        """Does the way go into the branch of another unit, as a context of it, or on inside a branch that two share?"""
        into, after = self._flow.bit(node), self._flow.bit(before)
        return any(
            into & other.nodes
            and before is not other.entry
            and (not after & other.nodes or (shared and node is not other.end))
            for other in others
        )
