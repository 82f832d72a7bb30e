"""The rule that finds residual units, and says why the other sums are none.

A unit ends in a sum of paths that leave one state, its entry. One path, the skip, does nothing or little (no
activation; at most a projection, a pool, a padding or a scale); the others are the branch, which uses a parameter
or mixes positions. Skip and branch share nothing but the entry, and nothing inside is used outside. The rule is
local: it looks at one sum at a time and knows no architecture.

The entry is looked for in three places, and the first that gives a unit is taken:
1. an operand that all other operands come from (what else flows in is context: cross-attention, time embeddings);
2. the sum's immediate dominator (both paths compute: projections);
3. the last common ancestor of the operands (projections next to a context).

Partial sums `(x + f) + g` are flattened, but not across a sum that ends a unit of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.flow import Calls, Flow

SUMS = frozenset(("add", "sub", "rsub"))


@dataclass(frozen=True)
class Region:
    """The nodes of one residual unit, up to its sum. Masks are those of the flow."""

    entry: fx.Node
    end: fx.Node  # the sum
    sums: tuple[fx.Node, ...]  # the sum and the partial sums that were flattened into it
    terms: tuple[fx.Node, ...]  # what is summed
    skip: fx.Node  # the term that is the skip
    skip_kind: str
    nodes: int  # after the entry, up to and including the sum
    skip_nodes: int
    linear: bool  # no activation in the branch

    def holds(self, other: Region) -> bool:
        return self is not other and other.nodes & ~self.nodes == 0


@dataclass(frozen=True)
class LeftOut:
    """A sum or concatenation of paths that is no residual unit, and why."""

    kind: str  # gated | entangled | parallel | concatenation | pointwise | unmeasurable
    where: str  # path of the module that executed it
    reason: str


class Rule:
    def __init__(self, flow: Flow, calls: Calls) -> None:
        self.flow, self.calls = flow, calls
        self.regions: dict[fx.Node, Region] = {}
        self.refused: dict[fx.Node, LeftOut] = {}  # by the sum or concatenation
        for node in flow.predecessors:
            if self.is_sum(node):
                self._examine_sum(node)
            elif operations.name(node) in ("cat", "concat"):
                self._examine_concatenation(node)
        self._drop_joined_contexts()
        self._drop_split_linear_layers()

    def is_sum(self, node: fx.Node) -> bool:
        return operations.name(node) in SUMS and len(self.flow.predecessors[node]) >= 2

    # -- sums

    def _examine_sum(self, node: fx.Node) -> None:
        separate: set[fx.Node] = set()  # partial sums that end units of their own
        while True:
            terms, partial = self._flattened(node, separate)
            found = self._unit(node, terms, partial)
            apart = {p for p in partial if p in self.regions and not self._merges(found, self.regions[p])}
            if not apart and (isinstance(found, Region) or not partial):
                break
            separate |= apart or set(partial)  # a partial sum may bring a context in: then it is part of the branch
        for p in partial:
            self.refused.pop(p, None)
        if isinstance(found, Region):
            for p in partial:
                self.regions.pop(p, None)
            self.regions[node] = found
        else:
            self.refused[node] = found

    def _flattened(self, node: fx.Node, separate: set[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
        terms: list[fx.Node] = []
        partial: list[fx.Node] = []
        for argument in self.flow.predecessors[node]:
            if self.is_sum(argument) and len(argument.users) == 1 and argument not in separate:
                inner_terms, inner_partial = self._flattened(argument, separate)
                terms += inner_terms
                partial += [argument, *inner_partial]
            else:
                terms.append(argument)
        return terms, partial

    def _merges(self, found: Region | LeftOut, part: Region) -> bool:
        """A partial sum is no unit of its own when the same call of a module goes on adding to the same entry."""
        return (
            isinstance(found, Region)
            and len(set(found.terms)) == len(found.terms)
            and part.entry is found.entry
            and self.calls.of(part.end) == self.calls.of(found.end)
        )

    def _unit(self, node: fx.Node, terms: list[fx.Node], partial: list[fx.Node]) -> Region | LeftOut:
        refusals: list[LeftOut] = []
        for entry in self._entries(node, terms):
            found = self._region(entry, node, terms, partial)
            if isinstance(found, Region):
                return found
            refusals.append(found)
        if refusals:
            return refusals[0]
        return self._refuse("parallel", node, "it adds paths that have no state in common")

    def _entries(self, node: fx.Node, terms: list[fx.Node]) -> list[fx.Node]:
        flow = self.flow
        common = flow.ancestors[terms[0]]
        for term in terms[1:]:
            common &= flow.ancestors[term]
        found = [term for term in terms if flow.bit(term) & common]
        if (dominator := flow.dominator[node]) is not None:
            found.append(dominator)
        last = [n for n in flow.unmask(common) if flow.descendants[n] & common == flow.bit(n)]
        if len(last) == 1:
            found += last
        return list(dict.fromkeys(found))

    def _region(self, entry: fx.Node, end: fx.Node, terms: list[fx.Node], partial: list[fx.Node]) -> Region | LeftOut:
        flow = self.flow
        if not isinstance(entry.meta.get("val"), Tensor):
            return self._refuse("entangled", end, "its paths start from different parts of a split tensor (a coupling)")
        paths = [_Path(self, entry, term) for term in terms]
        nodes = flow.between(entry, end)
        if not any(path.works for path in paths) or self._in_leaf_without_weights(end, nodes, paths):
            return self._refuse(
                "pointwise", end, "no path uses a parameter or mixes positions (activation, norm, rotary)"
            )
        skip = min(paths, key=lambda path: path.cost)
        branch = [path for path in paths if path is not skip]
        branch_nodes = 0
        for path in branch:
            branch_nodes |= path.nodes
        if skip.product is not None:
            return self._refuse("gated", end, "its skip is multiplied by a value computed from the state (a gate)")
        if skip.activation is not None:
            where = f"{operations.display(skip.activation)} on the smallest"
            return self._refuse("parallel", end, f"every path has an activation ({where}): parallel branches, no skip")
        if skip.nodes & branch_nodes:
            return self._refuse("entangled", end, "its skip and its branch share computation")
        if not any(path.works for path in branch):
            return self._refuse("pointwise", end, "its branch uses no parameter and mixes no positions")
        if _differs(end) and not any(path.mixes or path.weighted for path in paths):
            return self._refuse("pointwise", end, "it takes the difference of a state and its own average")
        linear = all(path.activation is None and path.product is None for path in branch)
        if skip.mixes and linear and max(path.mixes for path in branch) <= skip.mixes:
            return self._refuse("parallel", end, "no path does less than the others: parallel maps, no skip")
        if (leak := self._leak(nodes & ~flow.bit(end), nodes)) is not None:
            where = self.calls.path(leak) or "the model"
            return self._refuse(
                "entangled", end, f"a value inside ({operations.display(leak)} in {where}) is used outside"
            )
        return Region(
            entry=entry,
            end=end,
            sums=(end, *partial),
            terms=tuple(terms),
            skip=skip.term,
            skip_kind=self._skip_kind(skip, end, partial),
            nodes=nodes,
            skip_nodes=skip.nodes,
            linear=linear,
        )

    def _in_leaf_without_weights(self, end: fx.Node, nodes: int, paths: list[_Path]) -> bool:
        """Inside one leaf module (a norm, an activation) only a product with a weight makes a unit."""
        call = self.calls.of(end)
        if not self.calls.in_leaf(end) or any(self.calls.of(n) != call for n in self.flow.unmask(nodes)):
            return False
        return not any(path.weighs for path in paths)

    def _leak(self, inner: int, nodes: int) -> fx.Node | None:
        for node in self.flow.unmask(inner):
            for user in self.flow.successors[node]:
                if not self.flow.bit(user) & nodes:
                    return node
        return None

    def _skip_kind(self, skip: _Path, end: fx.Node, sums: Collection[fx.Node]) -> str:
        kinds = {operations.kind(n) for n in skip.members}
        names = {operations.name(n) for n in skip.members}
        if skip.mixes:
            return "projection"
        if kinds & {"pool", "reduce"}:
            return "pool"
        if "pad" in kinds or "cat" in names:
            return "pad"
        if kinds & {"pointwise", "norm"} or self._factor(end, skip.term, sums) != 1:
            return "scaled"
        same = operations.same_shape(skip.term, end) and names <= {"reshape", "unsqueeze", "squeeze", "flatten"}
        return "identity" if same else "layout"

    def _factor(self, node: fx.Node, term: fx.Node, sums: Collection[fx.Node]) -> float:
        """What the term is multiplied by in this sum: signs and alphas of the partial sums on the way, repetitions."""
        alpha: Any = node.kwargs.get("alpha", 1)
        signs = {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[operations.name(node)]
        total = 0.0
        for argument, sign in zip(node.args[:2], signs, strict=True):
            if argument is term:
                total += sign
            elif isinstance(argument, fx.Node) and argument in sums:
                total += sign * self._factor(argument, term, sums)
        return total

    def _drop_split_linear_layers(self) -> None:
        """A linear branch next to a projection, inside another unit, is one linear layer in two parts (adapters)."""
        for node, region in list(self.regions.items()):
            outer = any(other.holds(region) for other in self.regions.values())
            if outer and region.linear and region.skip_kind == "projection":
                del self.regions[node]
                self.refused[node] = self._refuse(
                    "parallel", node, "two linear maps are added: one linear layer in parts"
                )

    def _drop_joined_contexts(self) -> None:
        """In a unit's branch a sum whose own entry lies outside the unit only brings a context in (a modulation)."""
        for node, region in list(self.regions.items()):
            bit, entry = self.flow.bit(node), self.flow.bit(region.entry)
            around = [r for r in self.regions.values() if r is not region and r.nodes & bit]
            if any(not r.nodes & entry and r.entry is not region.entry for r in around):
                del self.regions[node]
                self.refused[node] = self._refuse("parallel", node, "it brings a context into a branch")

    # -- concatenations

    def _examine_concatenation(self, node: fx.Node) -> None:
        terms = self.flow.predecessors[node]
        if len(terms) < 2:
            return
        dominator = self.flow.dominator[node]
        if dominator is not None and not any(_Path(self, dominator, term).works for term in terms):
            return  # slices of one tensor put together again
        self.refused[node] = self._refuse("concatenation", node, "its paths are concatenated, not added")

    def _refuse(self, kind: str, node: fx.Node, reason: str) -> LeftOut:
        return LeftOut(kind, self.calls.path(node), reason)


def _differs(end: fx.Node) -> bool:
    return operations.name(end) in ("sub", "rsub")


class _Path:
    """What happens between an entry and one term of a sum."""

    def __init__(self, rule: Rule, entry: fx.Node, term: fx.Node) -> None:
        self.rule, self.term, self.entry = rule, term, rule.flow.bit(entry)
        self.nodes = 0 if term is entry else rule.flow.between(entry, term)
        self.members = list(rule.flow.unmask(self.nodes))

    def _inputs_on_path(self, node: fx.Node) -> int:
        """How many arguments depend on the entry: a product with a context is linear in the entry."""
        flow = self.rule.flow
        return sum(bool(flow.ancestors[argument] & self.entry) for argument in flow.predecessors[node])

    def _has_parameter(self, node: fx.Node) -> bool:
        flow = self.rule.flow
        return any(
            argument not in flow.predecessors and flow.reads[argument] & flow.parameters
            for argument in node.all_input_nodes
        )

    @cached_property
    def mixes(self) -> int:
        return sum(operations.kind(n) == "mix" for n in self.members)

    @cached_property
    def works(self) -> bool:
        """Uses a parameter or mixes positions."""
        return self.weighted or any(operations.kind(n) in ("mix", "pool") for n in self.members)

    @cached_property
    def weighted(self) -> bool:
        """Uses a parameter."""
        return any(self._has_parameter(n) for n in self.members)

    @cached_property
    def weighs(self) -> bool:
        """Multiplies by a weight matrix or kernel."""
        return any(operations.kind(n) == "mix" and self._has_parameter(n) for n in self.members)

    @cached_property
    def product(self) -> fx.Node | None:
        """The first product of two values that both come from inputs: a gate or attention."""
        products = (n for n in self.members if operations.name(n) in operations.PRODUCT)
        return next((n for n in products if self._inputs_on_path(n) >= 2), None)

    @cached_property
    def activation(self) -> fx.Node | None:
        """The first operation that is not linear in the entry. Norms and pools count as linear: skips have them."""
        for node in self.members:
            kind, operation = operations.kind(node), operations.name(node)
            if kind in ("layout", "norm", "pool", "pad"):
                continue
            if kind == "pointwise" and operation in operations.LINEAR_POINTWISE:
                continue
            if kind == "mix" and operation in operations.LINEAR_MIX and self._inputs_on_path(node) < 2:
                continue
            if kind == "reduce" and operation in ("mean", "sum", "amax"):
                continue
            return node
        return None

    @property
    def cost(self) -> tuple[bool, int, int]:
        return (self.activation is not None, self.mixes, sum(operations.kind(n) != "layout" for n in self.members))
