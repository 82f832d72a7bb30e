"""The paths of data through a program.

Only floating-point tensors are paths, from the float inputs and from embeddings indexed by inputs. Sizes, masks,
position ids, parameters and constants are not. On this directed acyclic graph live ancestors, descendants and
immediate dominators; sets of nodes are bit masks, so that a model of thousands of nodes costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from skipscope.trace import operations
from skipscope.trace.program import Program

LOOKUPS = frozenset("embedding embedding_bag index index_select gather".split())


class Flow:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.order = [node for node in program.graph.nodes if node.op != "output"]
        self.position = {node: i for i, node in enumerate(self.order)}
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
        while mask:
            low = mask & -mask
            yield self.order[low.bit_length() - 1]
            mask ^= low

    # -- construction

    def _value_dependence(self) -> None:
        """`reads`: every node whose value a node's value depends on, along any edge but sizes."""
        self.reads: dict[fx.Node, int] = {}
        inputs = self.mask(self.program.inputs)
        for node in self.order:
            reads = self.bit(node)
            if node.op == "call_function" and operations.name(node) not in operations.SHAPE_ONLY:
                for argument in node.all_input_nodes:
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
                before = [argument for argument in node.all_input_nodes if argument in self.ancestors]
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
        self._dominators()

    def _dominators(self) -> None:
        """Immediate dominators below a virtual root over all sources; None stands for the root."""
        self.dominator: dict[fx.Node, fx.Node | None] = {}
        depth: dict[fx.Node | None, int] = {None: 0}
        for node, before in self.predecessors.items():
            common: fx.Node | None = before[0] if before else None
            for other in before[1:]:
                a: fx.Node | None = common
                b: fx.Node | None = other
                while a is not b:
                    if depth[a] >= depth[b]:
                        assert a is not None
                        a = self.dominator[a]
                    else:
                        assert b is not None
                        b = self.dominator[b]
                common = a
            self.dominator[node] = common
            depth[node] = depth[common] + 1

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
