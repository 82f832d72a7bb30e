"""The paths of data through a program.

Only floating-point tensors are paths, from the float inputs and from embeddings indexed by inputs. Sizes, masks,
position ids, parameters and constants are not. On this directed acyclic graph live ancestors, descendants and
immediate dominators; sets of nodes are bit masks, so that a model of thousands of nodes costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from skipscope.trace import operations
from skipscope.trace.program import Program

if TYPE_CHECKING:
    from skipscope.trace.region import Region

LOOKUPS = frozenset("embedding embedding_bag index index_select gather".split())
Dominator = fx.Node | None  # None stands for a root over all sources
Call = tuple[str, ...]  # keys of nested calls, outermost first; a second call of one module has another key


class Flow:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.order = [node for node in program.graph.nodes if node.op != "output"]
        self.position = {node: i for i, node in enumerate(self.order)}
        self.arguments = {node: node.all_input_nodes for node in self.order}  # each list is made anew when asked for
        self._value_dependence()
        self._paths(self._sources())

    # -- sets of nodes as bit masks

    def bit(self, node: fx.Node) -> int:
        return 1 << self.position[node]

    def mask(self, nodes: Iterable[fx.Node]) -> int:
        result = 0
        for node in nodes:
            result |= self.bit(node)
        return result

    def unmask(self, mask: int) -> Iterator[fx.Node]:
        """The nodes of a mask in the order of the graph."""
        # Most masks are short runs far along the graph: without the zeros below, each step is on a small number.
        start = (mask & -mask).bit_length() - 1 if mask else 0
        mask >>= start
        while mask:
            low = mask & -mask
            yield self.order[start + low.bit_length() - 1]
            mask ^= low

    # -- construction

    def _value_dependence(self) -> None:
        """`reads`: every node whose value a node's value depends on, along any edge but sizes."""
        self.reads: dict[fx.Node, int] = {}
        inputs = self.mask(self.program.inputs)
        for node in self.order:
            reads = self.bit(node)
            if node.op == "call_function" and operations.name(node) not in operations.SHAPE_ONLY:
                for argument in self.arguments[node]:
                    if not self.program.is_free(argument):
                        reads |= self.reads[argument]
            self.reads[node] = reads
        self.from_inputs = {node for node, reads in self.reads.items() if reads & inputs}
        self.parameters = self.mask(node for node in self.program.weights if self.program.parameter(node) is not None)

    def _sources(self) -> set[fx.Node]:
        sources = {node for node in self.program.inputs if _is_float(node)}
        for node in self.order:
            if node.op != "call_function" or not _is_float(node) or node not in self.from_inputs:
                continue
            first = node.args[0] if node.args else None
            if not isinstance(first, fx.Node):
                continue
            if operations.name(node) in LOOKUPS and first not in self.from_inputs:
                sources.add(node)  # a table of weights indexed by inputs
            elif _dtype(first) is torch.uint8:
                sources.add(node)  # an image in bytes
        return sources

    def _paths(self, sources: set[fx.Node]) -> None:
        self.sources = sources
        self.predecessors: dict[fx.Node, list[fx.Node]] = {}
        self.successors: dict[fx.Node, list[fx.Node]] = {}
        self.ancestors: dict[fx.Node, int] = {}  # of a path node: itself and all before it
        for node in self.order:
            if node in sources:
                before: list[fx.Node] = []
            elif node.op == "call_function" and _is_float(node):
                if operations.name(node) in operations.SHAPE_ONLY:
                    continue
                before = [argument for argument in self.arguments[node] if argument in self.ancestors]
                if not before:
                    continue
            else:
                continue
            self.predecessors[node] = before
            self.successors[node] = []
            ancestors = self.bit(node)
            for argument in before:
                self.successors[argument].append(node)
                ancestors |= self.ancestors[argument]
            self.ancestors[node] = ancestors
        self.descendants: dict[fx.Node, int] = {}
        for node in reversed(list(self.predecessors)):
            descendants = self.bit(node)
            for user in self.successors[node]:
                descendants |= self.descendants[user]
            self.descendants[node] = descendants
        self.dominator = _dominators(self.predecessors, None)
        leaves = [leaf for leaf in self.program.outputs if isinstance(leaf, fx.Node) and leaf in self.ancestors]
        # The main output: the one that most of the model's paths lead to.
        self.sink = max(leaves, key=lambda leaf: self.ancestors[leaf].bit_count(), default=None)

    # -- questions

    def on_path(self, node: object) -> bool:
        return node in self.predecessors

    def between(self, entry: fx.Node, end: fx.Node) -> int:
        """The nodes on paths from `entry` (left out) to `end` (included)."""
        return self.descendants[entry] & self.ancestors[end] & ~self.bit(entry)


def _is_float(node: fx.Node) -> bool:
    return any(
        isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())
        for leaf in pytree.tree_leaves(node.meta.get("val"))
    )


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, Tensor) else None


def _dominators(before: Mapping[fx.Node, Sequence[Dominator]], root: Dominator) -> dict[Dominator, Dominator]:
    """The immediate dominator of each node below a root; before: what each node reads, in the order of the graph."""
    dominator: dict[Dominator, Dominator] = {}
    depth: dict[Dominator, int] = {root: 0}

    def common(a: Dominator, b: Dominator) -> Dominator:
        while a is not b:
            if depth[a] >= depth[b]:
                a = dominator[a]
            else:
                b = dominator[b]
        return a

    for node, read in before.items():
        dominator[node] = reduce(common, read) if read else root
        depth[node] = depth[dominator[node]] + 1
    return dominator


# -- module calls


class Calls:
    """Which call of which module executed a node."""

    def __init__(self, program: Program) -> None:
        self.modules = dict(program.model.named_modules(remove_duplicate=False))
        self._stacks: dict[fx.Node, tuple[tuple[str, str], ...]] = {}
        self._keys: dict[fx.Node, Call] = {}

    def stack(self, node: fx.Node) -> tuple[tuple[str, str], ...]:
        """(key, path) of every module call around the node, the model itself first."""
        if node not in self._stacks:
            stack = node.meta.get("nn_module_stack") or {}
            entries = [(key, value[0]) for key, value in stack.items() if not key.startswith("_empty")]
            self._stacks[node] = tuple(entries) or (("", ""),)
        return self._stacks[node]

    def of(self, node: fx.Node) -> Call:
        if node not in self._keys:
            self._keys[node] = tuple(key for key, _ in self.stack(node))
        return self._keys[node]

    def path(self, node: fx.Node) -> str:
        """The path of the innermost module that executed the node; empty for the model itself."""
        return self.stack(node)[-1][1]

    def in_leaf(self, node: fx.Node) -> bool:
        """Was the node executed by a module without children that is not the model itself?"""
        path = self.path(node)
        module = self.modules.get(path)
        return path != "" and module is not None and next(module.children(), None) is None


# -- cuts of a branch


@dataclass(frozen=True)
class Cut:
    """A value that everything going through a term of a branch passes, or a pointwise operation (before -> after) at
    such a place; before is after where it is a value alone.

    The rank of a branch's Jacobian is at most the size of any cut, and at most the number of non-zero entries of the
    derivative of a pointwise operation at one: an inactive ReLU passes nothing on.
    """

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
    inside = list(flow.unmask(flow.between(entry, term)))  # paths from elsewhere (context) do not count
    among = {entry, *inside}
    dominator = _dominators({node: [n for n in flow.predecessors[node] if n in among] for node in inside}, entry)
    chain: list[fx.Node] = []
    dominating: Dominator = term
    while dominating is not None and dominating is not entry:
        chain.insert(0, dominating)
        dominating = dominator[dominating]
    cuts = []
    for before, node in zip([entry, *chain], chain, strict=False):
        if any(isinstance(n.meta.get("val"), Tensor) and n.meta["val"].is_complex() for n in (before, node)):
            continue  # a complex entry carries two real numbers
        # A product with a larger tensor spreads an entry over several places: its derivative is no diagonal.
        same = flow.predecessors[node] == [before] and operations.same_shape(before, node)
        if operations.kind(node) == "pointwise" and same:
            cuts.append(Cut(before, node, term))
        elif isinstance(node.meta.get("val"), Tensor):
            cuts.append(Cut(node, node, term))
    return cuts
