"""Sums that collect: they add states of the trunk, or parts of one, and nothing new to any of them.

A term is a state after norms, activations and scales, or after a map of its own (the heads of early exits); an average
of a state (the trends that a decomposition takes out of it); a map of what another sum has collected; or a part of one
state (streams that are read out at the end of a model).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import fx

from skipscope.trace import operations
from skipscope.trace.flow import Flow
from skipscope.trace.region import Region
from skipscope.trace.terms import Term

SELECTIONS = frozenset(("select", "slice", "getitem"))
AVERAGES = frozenset(("layout", "pointwise", "norm", "pad", "pool", "reduce"))


def is_state(flow: Flow, node: fx.Node, states: Collection[fx.Node], mapped: bool = False) -> bool:
    """Is a value one of these states, or one of them after norms, activations and scales? mapped: after a linear map
    as well."""
    kinds: tuple[str, ...] = ("layout", "pointwise", "norm")
    kinds += ("mix", "pool", "reduce") if mapped else ()
    while node not in states:
        before = flow.predecessors[node]
        if operations.kind(node) not in kinds or len(before) != 1:
            return False
        if operations.kind(node) == "mix":
            kinds = ("layout", "pointwise", "norm", "pool", "reduce")
        node = before[0]
    return True


def adds_parts(flow: Flow, region: Region) -> bool:
    """Is every term another part of the entry, after one linear map of its own at most?"""
    terms = (Term(flow, region.entry, term, whole=True) for term in dict.fromkeys(region.terms))
    parts = [_part_of_entry(flow, term) for term in terms]
    return None not in parts and len(set(parts)) == len(parts)


def _part_of_entry(flow: Flow, term: Term) -> str | None:
    """Which part of the entry a term maps; None where it maps the whole, or more than once."""
    if len(term.mixing) > 1:
        return None
    node = term.term
    if term.mixing:
        before = term.from_entry(term.mixing[0])
        if len(before) != 1:
            return None
        node = before[0]
    while len(before := flow.predecessors[node]) == 1 and operations.kind(node) in ("layout", "pointwise"):
        if before[0] is term.entry:
            return f"{operations.name(node)} {node.args[1:]}" if operations.name(node) in SELECTIONS else None
        node = before[0]
    return None


def adds_averages(
    flow: Flow, terms: Sequence[fx.Node], states: Collection[fx.Node], collected: Collection[fx.Node]
) -> bool:
    """Are averages of several states added, or maps of several collected sums, to a value from before all states?

    collected: sums that collect averages.
    """
    before = flow.mask(states)
    from_states = [term for term in terms if flow.ancestors[term] & before]
    origins = [_average_of(flow, term, states) or _map_of(flow, term, collected) for term in from_states]
    return len(set(terms)) > 2 and len(origins) > 1 and None not in origins and len(set(origins)) == len(origins)


def _average_of(flow: Flow, term: fx.Node, states: Collection[fx.Node]) -> fx.Node | None:
    """The one state that a term is an average of."""
    found, seen, averaged = set[fx.Node](), set[fx.Node](), False
    waiting = [term]
    while waiting:
        node = waiting.pop()
        if node in states:
            found.add(node)
        elif node not in seen:
            seen.add(node)
            if operations.kind(node) not in AVERAGES or not flow.predecessors[node]:
                return None
            averaged = averaged or operations.kind(node) in ("pool", "reduce")
            waiting += flow.predecessors[node]
    return found.pop() if averaged and len(found) == 1 else None


def _map_of(flow: Flow, term: fx.Node, collected: Collection[fx.Node]) -> fx.Node | None:
    """The collected sum that a term is a linear map of."""
    node = term
    while node not in collected:
        linear = operations.kind(node) in ("layout", "pad", "pool") or operations.name(node) in operations.LINEAR_MIX
        if not linear or len(flow.predecessors[node]) != 1:
            return None
        (node,) = flow.predecessors[node]
    return node
