"""The nodes of a block that was exported, put where others like it are to be: see `repeated_blocks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.utils import _pytree as pytree

from skipscope.trace.alike_blocks import SYMBOLIC, Kind, Setting, UnlikeError
from skipscope.trace.functional import write_as_values, writes_elsewhere

WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER)


@dataclass(frozen=True)
class Marks:
    """The operations that stand around a block that was run, and for one that was not."""

    enter: Any
    leave: Any
    repeat: Any


@dataclass(frozen=True)
class Made:
    """A result of a block that is none of its arguments."""

    value: Any


@dataclass
class Pattern:
    """A block that was run, for those that are like it."""

    number: int
    path: str
    kind: Kind
    form: Any  # of the arguments
    read: set[Setting] = field(default_factory=set)  # of the settings in which blocks differ
    results: list[Any] = field(default_factory=list)  # the number of an argument, or what was made
    structure: Any = None  # of the results; None as long as it is not known to be repeatable

    def holds_for(self, path: str) -> bool:
        """Has another block of the kind the same settings, as far as they are read?"""
        return all(self.kind.differing[s][path] == self.kind.differing[s][self.path] for s in self.read)


def put_back(
    exported: ExportedProgram,
    patterns: Sequence[Pattern],
    hidden: Mapping[str, nn.Module],
    marks: Marks,
    repetitions: int,
) -> None:
    """hidden: blocks whose weights the export does not have yet."""
    graph = exported.graph
    write_as_values(graph)
    stands = {(node.target, node.args[1]): node for node in graph.nodes if node.target in (marks.enter, marks.leave)}
    places = [node for node in graph.nodes if node.target is marks.repeat]
    if len(places) != repetitions or len(stands) != 2 * len(patterns):
        raise UnlikeError("a block without effect")
    inputs = _Inputs(exported)
    used = {place.args[1] for place in places}
    nodes = {
        pattern.number: _Nodes(
            pattern, stands[marks.enter, pattern.number], stands[marks.leave, pattern.number], marks, inputs
        )
        for pattern in patterns
        if pattern.number in used
    }
    for place in places:
        if (block := hidden.get(str(place.args[2]))) is not None:
            inputs.add(str(place.args[2]), block, nodes[place.args[1]].weights, nodes[place.args[1]].path)
    for place in places:
        nodes[place.args[1]].copy_to(place)
    for mark in stands.values():
        graph.erase_node(mark)
    inputs.finish()


class _Inputs:
    """The placeholders of an exported program and what they stand for."""

    def __init__(self, exported: ExportedProgram) -> None:
        self._exported = exported
        names = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
        placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
        self._specs: dict[fx.Node, InputSpec] = {node: names[node.name] for node in placeholders}
        self.weights = {str(s.target): node for node, s in self._specs.items() if s.kind in WEIGHTS}
        self.constants = {node for node, s in self._specs.items() if s.kind is InputKind.CONSTANT_TENSOR}
        self._names = {node.name for node in exported.graph.nodes}
        self._last: dict[fx.Node, fx.Node] = {}  # of the placeholders put behind one

    def add(self, path: str, block: nn.Module, like: Mapping[fx.Node, str], like_path: str) -> None:
        """Placeholders for the weights of a block, each behind that of the block that it is like."""
        for node, name in like.items():
            own = name[len(like_path) + 1 :]
            target, spec = f"{path}.{own}", self._specs[node]
            # As the exporter names them; a name that it has given is not always known to the graph as taken.
            free = f"{node.name.split('_')[0]}_{target.replace('.', '_').lower()}"
            if free in self._names:
                raise UnlikeError("a name that is taken")
            self._names.add(free)
            with self._exported.graph.inserting_after(self._last.get(node, node)):
                new = self._exported.graph.placeholder(free)
            new.meta = dict(node.meta)
            self._last[node] = new
            self._specs[new] = replace(spec, arg=TensorArgument(name=new.name), target=target)
            self.weights[target] = new
            home, _, last = own.rpartition(".")
            weight = getattr(block.get_submodule(home), last)
            held = self._exported.constants if spec.persistent is False else self._exported.state_dict
            held[target] = weight

    def finish(self) -> None:
        if self._last:
            order = [node for node in self._exported.graph.nodes if node.op == "placeholder"]
            self._exported.graph_signature.input_specs[:] = [self._specs[node] for node in order]


class _Nodes:
    """The nodes of a block that was run; raises where others cannot be copies of them."""

    def __init__(self, pattern: Pattern, enter: fx.Node, leave: fx.Node, marks: Marks, inputs: _Inputs) -> None:
        self.path, self.enter, self._marks, self._inputs = pattern.path, enter, marks, inputs
        self.nodes: list[fx.Node] = []
        node = enter.next
        while node is not leave:
            self.nodes.append(node)
            node = node.next
        self.weights = {node: name for name, node in inputs.weights.items() if name.startswith(f"{self.path}.")}
        tensors = [r for r in pattern.results if isinstance(r, int) or isinstance(r.value, Tensor)]
        returned: Any = leave.args[0]
        self.results = [n for n, result in zip(returned, tensors, strict=True) if not isinstance(result, int)]
        arguments: Any = enter.args[0]
        self._check({*arguments, *self.weights, *inputs.constants}, leave)

    def _check(self, known: set[fx.Node], leave: fx.Node) -> None:
        inside = set(self.nodes)
        known |= inside
        for node in self.nodes:
            if node.op != "call_function" or node.target in (self._marks.enter, self._marks.leave, self._marks.repeat):
                raise UnlikeError("a graph or a block inside a block")
            outside = [argument for argument in node.all_input_nodes if argument not in known]
            if not all(isinstance(argument.meta.get("val"), SYMBOLIC) for argument in outside):
                raise UnlikeError("a block uses a value that is none of its arguments")
            if any(_depends_on_values(leaf) for leaf in pytree.tree_leaves(node.meta.get("val"))):
                raise UnlikeError("a size that depends on values")
            if node not in self.results and not inside.issuperset(user for user in node.users if user is not leave):
                raise UnlikeError("a value inside a block is used outside of it")
        if not set(self.results) <= inside:
            raise UnlikeError("a block returns one of its weights")
        if writes_elsewhere(self.nodes):
            raise UnlikeError("a block writes to a tensor that it did not make")

    def copy_to(self, place: fx.Node) -> None:
        graph, path = place.graph, str(place.args[2])
        # Arguments are looked up late: those of this block may be results of one that was put back before.
        arguments: tuple[Any, Any] = self.enter.args[0], place.args[0]
        copies: dict[fx.Node, fx.Node] = dict(zip(*arguments, strict=True))
        for node, name in self.weights.items():
            other = self._inputs.weights.get(path + name[len(self.path) :])
            if other is None:
                raise UnlikeError("a weight under another name")
            copies[node] = other
        above = dict(place.meta.get("nn_module_stack") or {})
        with graph.inserting_before(place):
            for node in self.nodes:
                copy = graph.node_copy(node, lambda argument: copies.get(argument, argument))
                copy.meta["nn_module_stack"] = self._stack(node, above, path)
                copies[node] = copy
        for item in list(place.users):
            number: Any = item.args[1]
            item.replace_all_uses_with(copies[self.results[number]])
            graph.erase_node(item)
        graph.erase_node(place)

    def _stack(self, node: fx.Node, above: Mapping[str, Any], path: str) -> dict[str, Any]:
        """The calls around the other block, and below it those of this one with the other's path."""
        stack = dict(above)
        for key, (where, *rest) in (node.meta.get("nn_module_stack") or {}).items():
            if where.startswith(f"{self.path}."):
                stack[key.replace(self.path, path, 1)] = (path + where[len(self.path) :], *rest)
        return stack


def _depends_on_values(leaf: Any) -> bool:
    sizes = [*leaf.shape] if isinstance(leaf, Tensor) else [leaf]
    symbols = (symbol for size in sizes if isinstance(size, SYMBOLIC) for symbol in size.node.expr.free_symbols)
    return any(str(symbol).startswith(("u", "zuf")) for symbol in symbols)
