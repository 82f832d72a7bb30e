"""What happens between the entry of a unit and one term of its sum.

A term in which the entry itself, or little more than it, is multiplied by something computed from the entry is *gated*
(highway networks, GRU gates) or, where the product is one of matrices, *mixed* (several streams, hyper-connections):
the way of the entry through it, its carrier, is what counts as the skip; the gate or mixing matrix is computed beside.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Flow

MATRIX_PRODUCTS = frozenset("mm bmm matmul einsum mv".split())


class Term:
    """The paths from an entry to one term of a sum. whole: a gate in it counts like all the rest, as in a branch."""

    def __init__(self, flow: Flow, entry: fx.Node, term: fx.Node, *, whole: bool = False) -> None:
        self.flow, self.term, self.entry = flow, term, entry
        self._bit = flow.bit(entry)
        self.all_nodes = 0 if term is entry else flow.between(entry, term)
        self.gate: fx.Node | None = None
        self.gated_at: fx.Node | None = None  # the product with the gate
        self.nodes = self.all_nodes
        if not whole and self.product is not None and (carrier := self._carrier(term)) is not None:
            self.gated_at, self.gate, self.nodes = carrier
            del self.product, self.members  # of all ways of the entry; from here on its carrier alone counts

    @cached_property
    def members(self) -> list[fx.Node]:
        return list(self.flow.unmask(self.nodes))

    def _carrier(self, node: fx.Node) -> tuple[fx.Node, fx.Node, int] | None:
        """The one product on the way of the entry to a node, its other factor, and the nodes on that way."""
        way = 0
        found: tuple[fx.Node, fx.Node] | None = None
        while node is not self.entry:
            way |= self.flow.bit(node)
            inputs = self.from_entry(node)
            if len(inputs) == 2 and operations.name(node) in operations.PRODUCT and found is None:
                light = [n for n in inputs if self._is_light(n)]
                if len(light) != 1:
                    return None
                gate = next(n for n in inputs if n is not light[0])
                if operations.name(node) == "div" and node.args[0] is not light[0]:
                    return None
                found, node = (node, gate), light[0]
            elif len(inputs) == 1 and self._carries(node):
                node = inputs[0]
            else:
                return None
        return None if found is None else (*found, way)

    def _is_light(self, node: fx.Node) -> bool:
        """Is a value the entry itself, or the entry in another layout or times a number?"""
        while node is not self.entry:
            inputs = self.from_entry(node)
            if len(inputs) != 1 or not self._carries(node):
                return False
            node = inputs[0]
        return True

    def _carries(self, node: fx.Node) -> bool:
        kind, operation = operations.kind(node), operations.name(node)
        return kind in ("layout", "pad") or (kind == "pointwise" and operation in operations.LINEAR_POINTWISE)

    def from_entry(self, node: fx.Node) -> list[fx.Node]:
        """The arguments that depend on the entry: a product with a context is linear in the entry."""
        return [n for n in self.flow.predecessors[node] if self.flow.ancestors[n] & self._bit]

    def _has_parameter(self, node: fx.Node) -> bool:
        return any(
            argument not in self.flow.predecessors and self.flow.reads[argument] & self.flow.parameters
            for argument in self.flow.arguments[node]
        )

    @cached_property
    def mixing(self) -> list[fx.Node]:
        return [n for n in self.members if operations.kind(n) == "mix" and n is not self.gated_at]

    @cached_property
    def mixes(self) -> int:
        """How many operations that mix follow each other on the longest way."""
        longest: dict[fx.Node, int] = {}
        mixing = set(self.mixing)
        for node in self.members:
            before = max((longest.get(n, 0) for n in self.flow.predecessors[node]), default=0)
            longest[node] = before + (node in mixing)
        return max(longest.values(), default=0)

    @cached_property
    def pools(self) -> bool:
        return any(operations.kind(n) == "pool" for n in self.members)

    @property
    def works(self) -> bool:
        """Combines positions or channels. A parameter alone does not: norms, activations and rotations may have one."""
        return bool(self.mixing) or self.pools

    @cached_property
    def weighted(self) -> bool:
        """Uses a parameter."""
        return any(self._has_parameter(n) for n in self.members)

    @cached_property
    def weighs(self) -> bool:
        """Multiplies by a weight matrix or kernel."""
        return any(self._has_parameter(n) for n in self.mixing)

    @cached_property
    def product(self) -> fx.Node | None:
        """The first product of two values that both come from the entry: a gate or attention."""
        products = (n for n in self.members if operations.name(n) in operations.PRODUCT and n is not self.gated_at)
        return next((n for n in products if len(self.from_entry(n)) >= 2), None)

    @cached_property
    def activation(self) -> fx.Node | None:
        """The first operation that is not linear in the entry. Norms and pools count as linear: skips have them."""
        for node in self.members:
            kind, operation = operations.kind(node), operations.name(node)
            if kind in ("layout", "norm", "pool", "pad") or node is self.gated_at:
                continue
            if kind == "pointwise" and operation in operations.LINEAR_POINTWISE:
                continue
            if kind == "mix" and operation in operations.LINEAR_MIX and len(self.from_entry(node)) < 2:
                continue
            if kind == "reduce" and operation in ("mean", "sum", "amax", "max"):
                continue
            return node
        return None

    @property
    def cost(self) -> tuple[bool, int, bool, int]:
        """A skip costs the least of all terms."""
        working = sum(operations.kind(n) != "layout" for n in self.members)
        return (self.activation is not None, self.mixes, self.gate is not None, working)

    @cached_property
    def mixes_streams(self) -> bool:
        """A matrix times the state from the left, computed or a weight: it mixes an axis of streams."""
        if self.gated_at is not None:
            return operations.name(self.gated_at) in MATRIX_PRODUCTS
        if len(self.mixing) != 1 or operations.name(self.mixing[0]) not in MATRIX_PRODUCTS:
            return False
        factors = [n for n in self.mixing[0].all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
        return len(factors) == 2 and factors[1] in self.from_entry(self.mixing[0])

    @cached_property
    def multipliers(self) -> tuple[Any, ...] | None:
        """Nodes and numbers that the entry is multiplied by on its way; None where more is done to it."""
        found: list[Any] = []
        node = self.term
        while node is not self.entry:
            inputs = self.from_entry(node)
            operation, others = operations.name(node), [n for n in node.args if n not in inputs]
            if node is self.gated_at:
                found.append(self.gate)
                inputs = [n for n in inputs if n is not self.gate]
            elif operation == "mul" or (self.mixes_streams and node in self.mixing):
                found += others
            elif operation == "neg":
                found.append(-1)
            elif operation == "div" and isinstance(others[0], int | float):
                found.append(1 / others[0])
            elif operations.kind(node) != "layout":
                return None
            if len(inputs) != 1:
                return None
            node = inputs[0]
        return tuple(found)

    def skip_kind(self, factor: float, end: fx.Node) -> str:
        """factor: of the term in the sum."""
        kinds = {operations.kind(n) for n in self.members}
        names = {operations.name(n) for n in self.members}
        if self.mixes_streams:
            return "streams"
        if self.gate is not None:
            return "gated"
        if self.mixes:
            return "projection"
        if kinds & {"pool", "reduce"}:
            return "pool"
        if "pad" in kinds or "cat" in names:
            return "pad"
        if kinds & {"pointwise", "norm"} or factor != 1:
            return "scaled"
        same = operations.same_shape(self.term, end) and names <= {"reshape", "unsqueeze", "squeeze", "flatten"}
        return "identity" if same else "layout"
