"""The cuts of a branch: values that everything going through it passes.

The rank of a branch's Jacobian is at most the size of any cut, and at most the number of non-zero entries of the
derivative of a pointwise operation at one: an inactive ReLU passes nothing on.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Flow
from skipscope.trace.rule import Region


@dataclass(frozen=True)
class Cut:
    """A pointwise operation (before -> after) that all of a term passes, or one value where before is after."""

    before: fx.Node
    after: fx.Node
    term: fx.Node

    @property
    def is_pointwise(self) -> bool:
        return self.before is not self.after


def cuts_of(flow: Flow, region: Region) -> list[list[Cut]]:
    """For each term of the branch, once however often it is added, its cuts, from the entry on."""
    return [_cuts(flow, region.entry, term) for term in dict.fromkeys(region.terms) if term is not region.skip]


def _cuts(flow: Flow, entry: fx.Node, term: fx.Node) -> list[Cut]:
    chain = _dominators(flow, entry, term)
    cuts = []
    for before, node in zip([entry, *chain], chain, strict=False):
        if any(isinstance(n.meta.get("val"), Tensor) and n.meta["val"].is_complex() for n in (before, node)):
            continue  # a complex entry carries two real numbers
        if operations.kind(node) == "pointwise" and flow.predecessors[node] == [before] and _same_shape(before, node):
            cuts.append(Cut(before, node, term))
        elif isinstance(node.meta.get("val"), Tensor):
            cuts.append(Cut(node, node, term))
    return cuts


def _same_shape(before: fx.Node, after: fx.Node) -> bool:
    """A product with a larger tensor spreads an entry over several places: its derivative is no diagonal."""
    return [str(size) for size in before.meta["val"].shape] == [str(size) for size in after.meta["val"].shape]


def _dominators(flow: Flow, entry: fx.Node, term: fx.Node) -> list[fx.Node]:
    """The nodes on every path from the entry to the term, in order; paths from elsewhere (context) do not count."""
    dominator: dict[fx.Node, fx.Node] = {}
    depth = {entry: 0}
    for node in flow.unmask(flow.between(entry, term)):
        before = [argument for argument in flow.predecessors[node] if argument in depth]
        common = before[0]
        for other in before[1:]:
            while common is not other:
                if depth[common] >= depth[other]:
                    common = dominator[common]
                else:
                    other = dominator[other]
        dominator[node] = common
        depth[node] = depth[common] + 1
    chain = []
    node = term
    while node is not entry:
        chain.append(node)
        node = dominator[node]
    return chain[::-1]
