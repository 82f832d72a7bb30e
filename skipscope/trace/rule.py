"""The rule that finds residual units, and says why the other sums are none.

A unit ends in a sum of paths that leave one state, its entry. One path, the skip, does nothing or little (no
activation; at most a projection, a pool, a padding, a scale, a gate or a mixing of streams); the others are the branch,
which combines positions or channels. Skip and branch share nothing but the entry and the gate, and what is inside goes
on through the sum (`leaks`). The rule is local: it looks at one sum at a time and knows no architecture.

The entry is looked for in three places, and the first that gives a unit is taken:
1. an operand that all other operands come from (what else flows in is context: cross-attention, time embeddings);
2. the sum's immediate dominator (both paths compute: projections);
3. the last common ancestor of the operands (projections next to a context).

Partial sums `(x + f) + g` are flattened, but not across a sum that ends a unit of its own.
"""

from __future__ import annotations

from torch import Tensor, fx

from skipscope.trace import operations
from skipscope.trace.collecting import adds_averages, adds_parts, is_state
from skipscope.trace.flow import Calls, Flow
from skipscope.trace.graph_edits import OURS
from skipscope.trace.leaks import goes_around, harmless
from skipscope.trace.region import LeftOut, Region, coefficient
from skipscope.trace.terms import Term

SUMS = frozenset(("add", "sub", "rsub"))


class Rule:
    def __init__(self, flow: Flow, calls: Calls) -> None:
        self.flow, self.calls = flow, calls
        self.regions: dict[fx.Node, Region] = {}
        self.refused: dict[fx.Node, LeftOut] = {}  # by the sum or concatenation
        self._doubtful: dict[fx.Node, Region] = {}  # units but for something inside that goes around their sum
        for node in flow.predecessors:
            if self.is_sum(node):
                self._examine_sum(node)
            elif operations.name(node) in ("cat", "concat"):
                self._examine_concatenation(node)
        self._settle_doubts()
        self._drop_inner_differences()
        self._drop_collecting_sums()
        self._drop_joined_contexts()
        self._drop_split_linear_layers()
        # Of a sum that is no unit the whole is reported, not its parts.
        parts = [node for node in self.refused if (root := self._root(node)) is not node and root in self.refused]
        self.refused = {node: left for node, left in self.refused.items() if node not in parts}

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
            self._doubtful.pop(p, None)
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
        if common:
            # The one that comes last is the last common ancestor if all others lie before it.
            last = flow.order[common.bit_length() - 1]
            if not common & ~flow.ancestors[last]:
                found.append(last)
        return list(dict.fromkeys(found))

    def _region(self, entry: fx.Node, end: fx.Node, terms: list[fx.Node], partial: list[fx.Node]) -> Region | LeftOut:
        flow = self.flow
        if not isinstance(entry.meta.get("val"), Tensor):
            return self._refuse("entangled", end, "its paths start from different parts of a split tensor (a coupling)")
        paths = [Term(flow, entry, term) for term in terms]
        nodes = flow.between(entry, end)
        skip = min(paths, key=lambda path: path.cost)
        # Of the skip its own way counts, not that of its gate; of x + x g(x) the branch is x g(x), with all of g.
        branch = [Term(flow, entry, path.term, whole=True) for path in paths if path is not skip]
        paths = [skip, *branch]
        if not any(path.works for path in paths) or self._in_leaf_without_weights(end, nodes, paths):
            return self._refuse("pointwise", end, "no path combines positions or channels (activation, norm, rotary)")
        branch_nodes = 0
        for path in branch:
            branch_nodes |= path.all_nodes
        if skip.product is not None:
            return self._refuse("parallel", end, "every path multiplies values of the state with each other: no skip")
        if skip.activation is not None:
            where = f"{operations.display(skip.activation)} on the smallest"
            return self._refuse("parallel", end, f"every path has an activation ({where}): parallel branches, no skip")
        if skip.nodes & branch_nodes:
            return self._refuse("entangled", end, "its skip and its branch share computation")
        if not any(path.mixes or (path.pools and not skip.pools) for path in branch):
            return self._refuse("pointwise", end, "its branch combines no positions or channels")
        if _differs(end) and not any(path.mixes or path.weighted for path in paths):
            return self._refuse("pointwise", end, "it takes the difference of a state and its own average")
        linear = all(path.activation is None and path.product is None for path in branch)
        if skip.mixes and linear and max(path.mixes for path in branch) <= skip.mixes:
            return self._refuse("parallel", end, "no path does less than the others: parallel maps, no skip")
        factor = coefficient(end, skip.term, partial)
        region = Region(
            entry=entry,
            end=end,
            sums=(end, *partial),
            terms=tuple(terms),
            skip=skip.term,
            skip_kind=skip.skip_kind(factor, end),
            nodes=nodes,
            skip_nodes=skip.nodes,
            linear=linear,
            gate=skip.gate,
            factor=factor,
            multipliers=skip.multipliers,
        )
        if (leak := goes_around(flow, region)) is not None:
            self._doubtful.setdefault(end, region)
            where = self.calls.path(leak) or "the model"
            return self._refuse(
                "entangled", end, f"a value inside ({operations.display(leak)} in {where}) goes around the sum"
            )
        return region

    def _in_leaf_without_weights(self, end: fx.Node, nodes: int, paths: list[Term]) -> bool:
        """Inside one leaf module (a norm, an activation) only a product with a weight makes a unit."""
        call = self.calls.of(end)
        if not self.calls.in_leaf(end) or any(self.calls.of(n) != call for n in self.flow.unmask(nodes)):
            return False
        return not any(path.weighs for path in paths)

    def _settle_doubts(self) -> None:
        """What goes around the sum of one unit may be a context of others, or collected beside all of them."""
        doubtful = {end: region for end, region in self._doubtful.items() if end in self.refused}
        kept, collecting = harmless(self.flow, doubtful, self.regions, self._root)
        for end, region in kept.items():
            self.regions[end] = region
            del self.refused[end]
        for part in [node for node in (*self.regions, *self.refused) if self._root(node) in collecting]:
            self._refuse_collecting(part)

    def _refuse_collecting(self, node: fx.Node) -> None:
        self.regions.pop(node, None)
        self.refused.pop(node, None)
        if self._root(node) is node:
            self.refused[node] = self._refuse("collecting", node, "it collects what several units compute")

    def _root(self, node: fx.Node) -> fx.Node | None:
        """The whole sum that a sum is part of; None for anything else."""
        if not self.is_sum(node):
            return None
        while len(node.users) == 1 and (user := next(iter(node.users))) in self.flow.predecessors and self.is_sum(user):
            node = user
        return node

    def _drop_inner_differences(self) -> None:
        """f(x) - x inside a unit belongs to its branch, which interpolates, and so do sums from which the same weights
        take another step (Runge-Kutta)."""
        for node, region in list(self.regions.items()):
            around = [other for other in self.regions.values() if other.holds(region)]
            steps = any(self._takes_steps(other, region) for other in around)
            if steps or (around and region.factor < 0):
                del self.regions[node]

    def _takes_steps(self, outer: Region, inner: Region) -> bool:
        """Does a unit use the weights of one inside it again, from the same entry or with its own entry as context?"""
        own = self._weights(inner.nodes)
        if not own or own & ~self._weights(outer.nodes & ~inner.nodes):
            return False
        return inner.entry is outer.entry or self._has_context_of(outer, inner)

    def _has_context_of(self, outer: Region, inner: Region) -> bool:
        """Does a unit inside another read something else that is computed from the other's entry?"""
        inside, entry = inner.nodes | self.flow.bit(inner.entry), self.flow.bit(outer.entry)
        return any(
            self.flow.ancestors[argument] & entry
            for node in self.flow.unmask(inner.nodes)
            for argument in self.flow.predecessors[node]
            if not self.flow.bit(argument) & inside
        )

    def _weights(self, nodes: int) -> int:
        read = 0
        for node in self.flow.unmask(nodes):
            for argument in self.flow.arguments[node]:
                if not self.flow.on_path(argument):
                    read |= self.flow.reads[argument]
        return read & self.flow.parameters

    def _drop_collecting_sums(self) -> None:
        """Three states or more that are added, each at most scaled, averaged, or read by a map of its own: they are
        collected, and nothing new is added to any of them."""
        states = {node for region in self.regions.values() for node in (region.entry, region.end)}
        for node, region in list(self.regions.items()):
            others, mapped = states - {node}, region.skip_kind == "projection"
            many = len(set(region.terms)) > 2
            collects = many and all(is_state(self.flow, term, others, mapped) for term in region.terms)
            if collects or (many and adds_parts(self.flow, region)):
                self._refuse_collecting(node)
        for node in [node for node in self.refused if self._root(node) is node]:
            terms, _ = self._flattened(node, set())
            if all(is_state(self.flow, term, states - {node}) for term in terms):
                self._refuse_collecting(node)
        self._drop_collected_averages()

    def _drop_collected_averages(self) -> None:
        collected: set[fx.Node] = set()
        for root in self.flow.predecessors:
            if self._root(root) is not root:
                continue
            terms, partial = self._flattened(root, set())
            parts = {root, *partial}
            if adds_averages(self.flow, terms, self.regions.keys() - parts, collected):
                collected.add(root)
                for node in parts & (self.regions.keys() | self.refused.keys()):
                    self._refuse_collecting(node)

    def _drop_split_linear_layers(self) -> None:
        """A linear branch next to a projection, inside another unit, is one linear layer in two parts (adapters).
        Inside a gated unit, or with other values of the unit around it, such a sum makes a gate or attention's scores.
        """
        for node, region in list(self.regions.items()):
            if region.skip_kind != "projection":
                continue
            outer = [other for other in self.regions.values() if other.holds(region)]
            part = region.linear or self._makes_scores(region)
            part = part or any(other.gate is not None or self._has_context_of(other, region) for other in outer)
            if outer and part:
                del self.regions[node]
                self.refused[node] = self._refuse(
                    "parallel", node, "two linear maps are added: one linear layer in parts"
                )

    def _makes_scores(self, region: Region) -> bool:
        """Does a sum go into a softmax, after masks and scales at most?"""
        waiting, seen = [region.end], set[fx.Node]()
        while waiting:
            for user in self.flow.successors[waiting.pop()]:
                if "softmax" in operations.name(user):
                    return True
                if user not in seen and operations.kind(user) in ("layout", "pointwise"):
                    seen.add(user)
                    waiting.append(user)
        return False

    def _drop_joined_contexts(self) -> None:
        """In a unit's branch a sum whose own entry lies outside the unit only brings a context in (a modulation). The
        last ones first: such a sum seems to hold earlier units that read the same context, and is not to drop them."""
        for node, region in sorted(self.regions.items(), key=lambda found: self.flow.bit(found[0]), reverse=True):
            bit, entry = self.flow.bit(node), self.flow.bit(region.entry)
            around = [r for r in self.regions.values() if r is not region and r.nodes & bit]
            if any(not r.nodes & entry and r.entry is not region.entry for r in around):
                del self.regions[node]
                self.refused[node] = self._refuse("parallel", node, "it brings a context into a branch")

    # -- concatenations

    def _examine_concatenation(self, node: fx.Node) -> None:
        terms = self.flow.predecessors[node]
        if len(terms) < 2 or OURS in node.meta:
            return
        dominator = self.flow.dominator[node]
        if dominator is not None and not any(Term(self.flow, dominator, term).works for term in terms):
            return  # slices of one tensor put together again
        self.refused[node] = self._refuse("concatenation", node, "its paths are concatenated, not added")

    def _refuse(self, kind: str, node: fx.Node, reason: str) -> LeftOut:
        return LeftOut(kind, self.calls.path(node), reason)


def _differs(end: fx.Node) -> bool:
    return operations.name(end) in ("sub", "rsub")
