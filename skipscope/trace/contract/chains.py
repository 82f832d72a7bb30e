"""From the graph to hooks: which module's output a term of a sum starts from, and what is done to it until then.

Every node of the graph knows the calls of modules that it was executed in. Seen from the code that executes the sum
(its *frame*), a term comes out of the outermost module that the frame itself is not inside of. If that module only
scales, normalises or reshapes one incoming tensor (a norm after attention, LayerScale), it is a step, and what goes
into it is looked at in the same way; if it combines positions or channels, it is the module that computes the branch.
Operations that the frame executes itself (times 0.22) are steps too. What remains unclear, such as a product of the
outputs of two modules, is not guessed: it is a problem with words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from skipscope.trace import operations
from skipscope.trace.contract.places import HookStep, Side
from skipscope.trace.graph_trunk import GraphTrunk, GraphUnit
from skipscope.trace.naming import owner_of

LIGHT = frozenset(("layout", "pointwise", "norm", "reduce", "pool", "pad"))
ROOTS = frozenset("rsqrt sqrt linalg_vector_norm norm".split())  # what a norm that is written by hand divides by
RESHAPES = frozenset("reshape flatten unsqueeze squeeze".split())
Frame = tuple[str, ...]  # keys of the calls around a node, without that of the model itself


class Unclear(Exception):  # noqa: N818 - carries words to the contract of one unit; no error of the program
    """Why no module's output can be named."""


@dataclass(frozen=True)
class Chain:
    """The way of one term: from the value at `source` through `steps` to the term.

    module: whose output `source` is; None where that is the entry. exact: the module whose output is the term itself.
    """

    term: fx.Node
    source: fx.Node
    module: str | None
    steps: tuple[HookStep, ...]
    exact: str | None


class Chains:
    """The terms, tails and states of a trunk's units, as the modules of the model have them."""

    def __init__(self, trunk: GraphTrunk) -> None:
        self.trunk = trunk
        self.flow, self.calls = trunk.structure.flow, trunk.structure.calls
        self.program = trunk.program
        self._members: dict[str, int] = {}  # the nodes of each call
        for node in self.flow.predecessors:
            for key, _ in self._around(node):
                self._members[key] = self._members.get(key, 0) | self.flow.bit(node)

    def _around(self, node: fx.Node) -> tuple[tuple[str, str], ...]:
        """(key, path) of the calls around a node, outermost first, without that of the model itself."""
        return tuple((key, path) for key, path in self.calls.stack(node) if path)

    def _frame(self, node: fx.Node) -> Frame:
        return tuple(key for key, _ in self._around(node))

    # -- terms

    def term(self, unit: GraphUnit, term: fx.Node) -> Chain:
        region = unit.part.region
        reader = next(node for node in region.sums if term in node.all_input_nodes)
        return self._chain(term, region.entry, self._frame(reader))

    def tail(self, unit: GraphUnit) -> tuple[HookStep, ...]:
        """What is done to the sum, in the words of steps."""
        if unit.exit is unit.end:
            return ()
        chain = self._chain(unit.exit, unit.end, self._frame(unit.end), whole=True)
        return chain.steps

    def _chain(self, term: fx.Node, entry: fx.Node, frame: Frame, *, whole: bool = False) -> Chain:
        """whole: go on to the entry, through modules that take it in."""
        node, steps, exact = term, list[HookStep](), None
        while node is not entry:
            outside = [call for call in self._around(node) if call[0] not in frame]
            if not outside:
                before = self._only_argument(node, entry)
                steps.append(self._operation(before, node))
                node = before
                continue
            key, path = outside[0]
            exact = path if node is term else exact
            through = self._taken_through(key, node, entry)
            if through is None or (through is entry and not whole):
                source = node
                while steps and _is_reshape(steps[-1]):  # the same numbers: the place says in which shape
                    source = steps.pop().after or source
                return Chain(term, source, path, tuple(reversed(steps)), exact)
            steps.append(self._module_step(key, path, through, node))
            node = through
        return Chain(term, entry, None, tuple(reversed(steps)), exact)

    def _only_argument(self, node: fx.Node, entry: fx.Node) -> fx.Node:
        """The one value that the block's own code makes this one of."""
        bit = self.flow.bit(entry)
        inputs = [n for n in self.flow.predecessors[node] if self.flow.ancestors[n] & bit]
        if len(inputs) == 1 and operations.kind(node) in LIGHT:
            return inputs[0]
        where = self.calls.path(node) or "the model itself"
        what = operations.display(node)
        if len(inputs) > 1:
            homes = ", ".join(dict.fromkeys(self.calls.path(n) or operations.display(n) for n in inputs))
            raise Unclear(f"{where} computes it in its own code, by {what} of several values ({homes})")
        raise Unclear(
            f"{where} computes it in its own code, by {what}, and not in a module that a hook could be put on"
        )

    def _taken_through(self, key: str, node: fx.Node, entry: fx.Node) -> fx.Node | None:
        """The one tensor from the entry that a call turns into `node` without combining positions or channels."""
        flow = self.flow
        on_the_way = flow.descendants[entry] & flow.ancestors[node]
        members = list(flow.unmask(self._members[key] & on_the_way))
        if any(operations.kind(member) not in LIGHT for member in members):
            return None
        inside = flow.mask(members)
        incoming = {n for member in members for n in flow.predecessors[member] if not flow.bit(n) & inside}
        incoming = {n for n in incoming if flow.bit(n) & (on_the_way | flow.bit(entry))}
        return incoming.pop() if len(incoming) == 1 else None

    # -- steps

    def _module_step(self, key: str, path: str, before: fx.Node, after: fx.Node) -> HookStep:
        members = list(self.flow.unmask(self._members[key] & self.flow.between(before, after)))
        if len(members) == 1 and (factor := self._factor(members[0], before)) is not None:
            return HookStep("factor", factor[0], factor[1], path, before, after)
        kind = type(self.trunk.model.get_submodule(path)).__name__.lower()
        normalises = any(operations.kind(n) == "norm" or operations.name(n) in ROOTS for n in members)
        return HookStep("norm" if normalises or "norm" in kind else "module", path, None, path, before, after)

    def _operation(self, before: fx.Node, node: fx.Node) -> HookStep:
        if (factor := self._factor(node, before)) is not None:
            return HookStep("factor", *factor, None, before, node)
        return HookStep("operation", operations.display(node), None, None, before, node)

    def _factor(self, node: fx.Node, value: fx.Node) -> tuple[str, float | None] | None:
        """What a node multiplies a value by: (text, number), or (name of a weight, None)."""
        operation = operations.name(node)
        if operation == "neg":
            return "-1", -1.0
        others: list[Any] = [argument for argument in node.args if argument is not value]
        if operation not in ("mul", "div") or len(others) != 1 or (node.args[0] is not value and operation == "div"):
            return None
        other = others[0]
        if isinstance(other, int | float):
            number = float(other) if operation == "mul" else 1 / other
            return f"{number:g}", number
        while isinstance(other, fx.Node) and operations.kind(other) == "layout" and other.all_input_nodes:
            other = other.all_input_nodes[0]  # gamma as (1, channels, 1, 1)
        if operation == "mul" and isinstance(other, fx.Node) and other in self.program.weights:
            return self.program.weights[other], None
        return None

    # -- states

    def homes(self, unit: GraphUnit, node: fx.Node, first: Side) -> tuple[tuple[str, Side], ...]:
        """The modules that give or take a state of a unit, those on the side `first` before the others. The block
        around the unit is what people put hooks on; then what lies inside it, and what holds several blocks last."""
        own = self._around(node)
        outputs: list[str] = []
        inputs: list[str] = []
        for user in self._readers(node):
            theirs = () if user.op == "output" else self._around(user)
            shared = _shared(own, theirs)
            outputs += [path for _, path in own[shared:]]
            inputs += [path for _, path in theirs[shared:]]
        around = [path for _, path in owner_of(self.flow, self.calls, unit.part.region)]

        def usual(path: str) -> tuple[int, int]:
            if path == around[-1]:
                return 0, 0
            depth = path.count(".")
            return (2, -depth) if path in around else (1, depth)

        given: list[tuple[str, Side]] = [(path, "output") for path in sorted(dict.fromkeys(outputs), key=usual)]
        taken: list[tuple[str, Side]] = [(path, "input") for path in sorted(dict.fromkeys(inputs), key=usual)]
        return tuple(given + taken if first == "output" else taken + given)

    def _readers(self, node: fx.Node) -> Iterator[fx.Node]:
        """What reads a value, also in another shape (a state that is flattened before a norm)."""
        for user in node.users:
            yield user
            if operations.name(user) in RESHAPES:
                yield from self._readers(user)


def _is_reshape(step: HookStep) -> bool:
    return step.kind == "operation" and step.after is not None and operations.name(step.after) in RESHAPES


def _shared(own: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]) -> int:
    """The number of calls that two nodes have in common, from the outermost on."""
    return next((i for i, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), min(len(own), len(theirs)))
