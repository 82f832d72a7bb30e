"""Blocks that are alike are run once by the exporter: what it does for one of them holds for the others.

A deep network is mostly one block many times (the layers of a transformer, a stage of a residual network), and an
export takes as long as all of them together. Where the children of a `ModuleList` or `Sequential` differ in their
weights only, the first is run as always; in place of the others the exporter sees one opaque operation with results of
the same form, and afterwards the nodes of the first are put there, with the weights and the module paths of the other.

What a block computes may depend on its settings, its arguments and the form of its weights. Settings in which the
blocks differ (the number of a layer) are watched while a block runs: only those that are read tell blocks apart.
A block that is called with arguments of a new form, or has another value of a setting that is read, is run as well,
and is the pattern for those that are like it. What is not plainly a repetition (hooks, shared weights, a second call,
state that a call leaves behind) is run as always; where the graph shows that a block was none (it uses values from
elsewhere, writes to its arguments, has sizes that depend on values), the model is exported again as it is.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from skipscope.trace.functional import writes_elsewhere

FEWEST = 3  # blocks of one kind: for fewer it is not worth the trouble
CONTAINERS = (nn.ModuleList, nn.Sequential)
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
HELD = ("_parameters", "_buffers", "_modules")
Setting = tuple[str, str]  # the path in the block and the name

NAMESPACE = "skipscope"
while hasattr(getattr(torch.ops, NAMESPACE), "enter_block"):
    NAMESPACE += "_again"  # the module was imported before, and torch keeps its operators
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_library.define("enter_block(Tensor[] x, int pattern) -> ()")
_library.define("leave_block(Tensor[] x, int pattern) -> ()")
_library.define("repeat_block(Tensor[] x, int pattern, str path) -> Tensor[]")
_ENTER, _LEAVE, _REPEAT = (
    getattr(getattr(torch.ops, NAMESPACE), name).default for name in ("enter_block", "leave_block", "repeat_block")
)
for _mark in (_ENTER, _LEAVE):
    fx.node.has_side_effect(_mark)  # else it is taken out of the graph as dead
_running: list[_Attempt] = []


class UnlikeError(Exception):
    """A block is no plain repetition of another. Not for users: the model is then exported as it is."""


def export_blocks_once(model: nn.Module, export: Callable[[], ExportedProgram]) -> ExportedProgram:
    """What `export` returns for the model, but for the names of nodes."""
    kinds = _kinds(model)
    if not kinds:
        return export()
    attempt = _Attempt(kinds)
    try:
        with attempt.in_place():
            exported = export()
        attempt.put_back(exported)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception:
        if not attempt.repetitions:
            raise  # the model itself cannot be exported
        return export()
    return exported


# -- which blocks are alike


@dataclass
class _Kind:
    """Blocks of the same code with weights of the same forms, by their paths."""

    blocks: dict[str, nn.Module]
    differing: dict[Setting, dict[str, Any]]  # settings that are not the same: their values by the block's path
    patterns: list[_Pattern] = field(default_factory=list)


@dataclass
class _Pattern:
    """A block that was run, for those that are like it."""

    number: int
    path: str
    form: Any  # of the arguments
    read: set[Setting] = field(default_factory=set)  # of the settings in which blocks differ
    results: list[Any] = field(default_factory=list)  # the number of an argument, or what was made
    structure: Any = None  # of the results; None as long as it is not known to be repeatable


@dataclass(frozen=True)
class _Made:
    """A result of a block that is none of its arguments."""

    value: Any


def _kinds(model: nn.Module) -> list[_Kind]:
    modules = list(model.named_modules(remove_duplicate=False))
    times = Counter(id(module) for _, module in modules)
    tensors = Counter(id(value) for _, module in modules for value in _weights(module).values())
    kinds: list[_Kind] = []
    taken: set[str] = set()  # paths of blocks: what repeats itself inside one is not looked at
    for path, container in modules:
        parts = path.split(".")
        if not isinstance(container, CONTAINERS) or len(container) < FEWEST:
            continue
        if any(".".join(parts[: i + 1]) in taken for i in range(len(parts))):
            continue
        groups: dict[Any, dict[str, nn.Module]] = {}
        for name, block in container.named_children():
            if _stands_alone(block, times, tensors):
                groups.setdefault(_likeness(block), {})[f"{path}.{name}" if path else name] = block
        for group in groups.values():
            if len(group) >= FEWEST:
                kinds.append(_Kind(group, _differing(group)))
                taken |= group.keys()
    return kinds


def _weights(module: nn.Module) -> dict[str, Tensor]:
    places = (module._parameters, module._buffers)
    return {key: value for place in places for key, value in place.items() if value is not None}


def _stands_alone(block: nn.Module, times: Counter[int], tensors: Counter[int]) -> bool:
    """Is it made of modules, with weights, none of which are in another place, and is nothing attached to them?"""
    if next(block.children(), None) is None:
        return False
    modules = list(block.modules())
    for module in modules:
        settings = vars(module)
        if times[id(module)] > 1 or isinstance(module, torch.jit.ScriptModule) or "forward" in settings:
            return False
        if any(value for key, value in settings.items() if key.endswith("_hooks")):
            return False
    weights = [value for module in modules for value in _weights(module).values()]
    return bool(weights) and all(tensors[id(value)] == 1 and _is_usual(value) for value in weights)


def _is_usual(value: Tensor) -> bool:
    return type(value) in (Tensor, nn.Parameter) or hasattr(value, "fake_mode")


def _likeness(block: nn.Module) -> Any:
    parts = []
    for name, module in block.named_modules():
        weights = _weights(module)
        forms = tuple((key, type(value), value.requires_grad, _form(value)) for key, value in weights.items())
        none = tuple(key for place in (module._parameters, module._buffers) for key in place if key not in weights)
        parts.append((name, type(module), forms, none, tuple(vars(module))))
    return tuple(parts)


def _differing(blocks: Mapping[str, nn.Module]) -> dict[Setting, dict[str, Any]]:
    found: dict[Setting, dict[str, Any]] = {}
    for together in zip(*(block.named_modules() for block in blocks.values()), strict=True):
        settings = [vars(module) for _, module in together]
        for key, first in settings[0].items():
            if key not in HELD and any(other[key] is not first for other in settings):
                values = dict(zip(blocks, (_plain(other[key]) for other in settings), strict=True))
                if any(value != values[next(iter(blocks))] for value in values.values()):
                    found[together[0][0], key] = values
    return found


def _plain(value: Any) -> Any:
    """A setting that can be compared by its value; anything else is like itself alone."""
    if isinstance(value, PLAIN_TYPES):
        return type(value), repr(value)
    if isinstance(value, list | tuple):
        return type(value), tuple(_plain(part) for part in value)
    if isinstance(value, set | frozenset):
        return type(value), frozenset(_plain(part) for part in value)
    if isinstance(value, dict):
        return type(value), tuple((_plain(key), _plain(part)) for key, part in value.items())
    return id(value)


def _form(value: Any) -> Any:
    """Of a tensor all that an export can depend on, of a plain value itself. Sizes as text: comparing adds guards."""
    if isinstance(value, Tensor) and _is_usual(value):
        sizes = str(tuple(value.shape)), str(value.stride()), str(value.storage_offset())
        return sizes, value.dtype, value.device, value.layout, value.is_conj(), value.is_neg()
    if isinstance(value, SYMBOLIC):
        return type(value), str(value)
    if isinstance(value, PLAIN_TYPES):
        return type(value), repr(value)
    raise UnlikeError(f"a value of class {type(value).__name__}")


def _form_of_call(args: Any, kwargs: Any) -> Any:
    leaves, structure = pytree.tree_flatten((args, kwargs))
    tensors = {id(leaf): i for i, leaf in reversed([*enumerate(leaves)]) if isinstance(leaf, Tensor)}
    which = [tensors.get(id(leaf)) for leaf in leaves]  # are one and the same: code may ask `key is query`
    return [_form(leaf) for leaf in leaves], structure, which


# -- while the exporter runs


class _Attempt:
    def __init__(self, kinds: Sequence[_Kind]) -> None:
        self.kinds = kinds
        self.patterns: list[_Pattern] = []
        self._called: set[str] = set()
        self._repeated: set[str] = set()

    @property
    def repetitions(self) -> int:
        return len(self._repeated)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The forward of every block is ours."""
        blocks = [(kind, path, block) for kind in self.kinds for path, block in kind.blocks.items()]
        _running.append(self)
        try:
            for kind, path, block in blocks:
                vars(block)["forward"] = self._forward(kind, path, block.forward)
            yield
        finally:
            for _, _, block in blocks:
                vars(block).pop("forward", None)
            _running.remove(self)

    def _forward(self, kind: _Kind, path: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if path in self._repeated:
                raise UnlikeError("a block is called again, and what is in it is to be numbered as called again")
            tensors = _each_once(pytree.tree_leaves((args, kwargs)))
            try:
                form = _form_of_call(args, kwargs)
            except UnlikeError:
                return own(*args, **kwargs)
            if path in self._called or not tensors:
                return own(*args, **kwargs)
            self._called.add(path)
            for pattern in kind.patterns:
                if pattern.form == form and all(_same(kind.differing[s], path, pattern.path) for s in pattern.read):
                    if pattern.structure is None:
                        return own(*args, **kwargs)
                    return self._repeat(pattern, path, tensors)
            kind.patterns.append(_Pattern(len(self.patterns), path, form))
            self.patterns.append(kind.patterns[-1])
            return self._run(kind, kind.patterns[-1], own, args, kwargs)

        return forward

    def _run(self, kind: _Kind, pattern: _Pattern, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = _each_once(leaves)
        block = kind.blocks[pattern.path]
        before = _state(block)
        _ENTER(tensors, pattern.number)
        with _watching(block, kind.differing, pattern.read):
            result = own(*args, **kwargs)
        found, structure = pytree.tree_flatten(result)
        _LEAVE([leaf for leaf in found if isinstance(leaf, Tensor)] or tensors, pattern.number)
        after = pytree.tree_leaves((args, kwargs))
        untouched = len(after) == len(leaves) and all(a is b for a, b in zip(after, leaves, strict=True))
        try:
            form = _form_of_call(args, kwargs)
            made = [_form(leaf) for leaf in found]
        except UnlikeError:
            return result
        places = {id(tensor): i for i, tensor in enumerate(tensors)}
        pattern.results = [places.get(id(leaf), _Made(leaf)) for leaf in found]
        if made and untouched and form == pattern.form and _state(block) == before:
            pattern.structure = structure
        return result

    def _repeat(self, pattern: _Pattern, path: str, tensors: list[Tensor]) -> Any:
        self._repeated.add(path)
        made = iter(_REPEAT(tensors, pattern.number, path))
        found = [
            tensors[result]
            if isinstance(result, int)
            else next(made)
            if isinstance(result.value, Tensor)
            else result.value
            for result in pattern.results
        ]
        return pytree.tree_unflatten(found, pattern.structure)

    def put_back(self, exported: ExportedProgram) -> None:
        """Put the nodes of the patterns where they are repeated."""
        graph = exported.graph
        marks = {(node.target, node.args[1]): node for node in graph.nodes if node.target in (_ENTER, _LEAVE)}
        places = [node for node in graph.nodes if node.target is _REPEAT]
        names = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
        inputs = {node: names[node.name] for node in graph.nodes if node.op == "placeholder"}
        weights = {str(s.target): n for n, s in inputs.items() if s.kind in (InputKind.PARAMETER, InputKind.BUFFER)}
        constants = {n for n, spec in inputs.items() if spec.kind is InputKind.CONSTANT_TENSOR}
        used = {place.args[1] for place in places}
        nodes = {
            pattern.number: _Nodes(
                pattern, marks[_ENTER, pattern.number], marks[_LEAVE, pattern.number], weights, constants
            )
            for pattern in self.patterns
            if pattern.number in used
        }
        for place in places:
            nodes[place.args[1]].copy_to(place)
        for mark in marks.values():
            graph.erase_node(mark)
        if len(places) != self.repetitions or len(marks) != 2 * len(self.patterns):
            raise UnlikeError("a block without effect")
        exported.graph_module.recompile()


def _same(values: Mapping[str, Any], path: str, other: str) -> bool:
    return bool(values[path] == values[other])


def _each_once(leaves: Iterable[Any]) -> list[Tensor]:
    """An argument may be given twice (query and key)."""
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}.values())


def _state(block: nn.Module) -> Any:
    """What a call may leave behind in a block."""
    held = [(key, value) for module in block.modules() for key, value in vars(module).items()]
    held += [item for module in block.modules() for kind in HELD for item in vars(module)[kind].items()]
    sizes = [len(value) for _, value in held if isinstance(value, list | dict | set)]
    return [(key, id(value)) for key, value in held], sizes


@contextmanager
def _watching(block: nn.Module, settings: Iterable[Setting], read: set[Setting]) -> Iterator[None]:
    """Take down which of these settings of the block are read."""
    watched: dict[int, dict[str, Setting]] = {}
    classes: set[type] = set()
    for path, name in settings:
        module = block.get_submodule(path)
        watched.setdefault(id(module), {})[name] = (path, name)
        classes.add(type(module))
    with ExitStack() as stack:
        for some in classes:
            stack.enter_context(_reads_seen(some, watched, read))
        yield


@contextmanager
def _reads_seen(some: Any, watched: Mapping[int, Mapping[str, Setting]], read: set[Setting]) -> Iterator[None]:
    """Of the watched modules of one class."""
    own, usual = vars(some).get("__getattribute__"), some.__getattribute__

    def seen(self: Any, name: str) -> Any:
        settings = watched.get(id(self))
        if settings is not None:
            if name in settings:
                read.add(settings[name])
            elif name == "__dict__" and sys._getframe(1).f_globals.get("__name__") != nn.Module.__module__:
                read.update(settings.values())  # whoever has all settings may read any
        return usual(self, name)

    some.__getattribute__ = seen
    try:
        yield
    finally:
        if own is None:
            del some.__getattribute__
        else:
            some.__getattribute__ = own


def _nothing(x: Sequence[Tensor], pattern: int) -> None:
    return None


def _of_its_form(x: Sequence[Tensor], pattern: int, path: str) -> list[Tensor]:
    made = [result.value for result in _running[-1].patterns[pattern].results if isinstance(result, _Made)]
    return [
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        for value in made
        if isinstance(value, Tensor)
    ]


torch.library.register_fake(f"{NAMESPACE}::enter_block", _nothing, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::leave_block", _nothing, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::repeat_block", _of_its_form, lib=_library)


# -- afterwards


class _Nodes:
    """The nodes of a block that was run; raises where others cannot be copies of them."""

    def __init__(
        self,
        pattern: _Pattern,
        enter: fx.Node,
        leave: fx.Node,
        weights: Mapping[str, fx.Node],
        constants: set[fx.Node],
    ) -> None:
        self.path, self.enter, self.all_weights = pattern.path, enter, weights
        self.nodes: list[fx.Node] = []
        node = enter.next
        while node is not leave:
            self.nodes.append(node)
            node = node.next
        self.weights = {node: name for name, node in weights.items() if name.startswith(f"{self.path}.")}
        tensors = [r for r in pattern.results if isinstance(r, int) or isinstance(r.value, Tensor)]
        returned: Any = leave.args[0]
        self.results = [n for n, result in zip(returned, tensors, strict=True) if not isinstance(result, int)]
        arguments: Any = enter.args[0]
        self._check({*arguments, *self.weights, *constants})

    def _check(self, known: set[fx.Node]) -> None:
        inside = set(self.nodes)
        known |= inside
        for node in self.nodes:
            if node.op != "call_function" or node.target in (_ENTER, _LEAVE, _REPEAT):
                raise UnlikeError("a graph or a block inside a block")
            outside = [argument for argument in node.all_input_nodes if argument not in known]
            if not all(isinstance(argument.meta.get("val"), SYMBOLIC) for argument in outside):
                raise UnlikeError("a block uses a value that is none of its arguments")
            if any(_depends_on_values(leaf) for leaf in pytree.tree_leaves(node.meta.get("val"))):
                raise UnlikeError("a size that depends on values")
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
            other = self.all_weights.get(path + name[len(self.path) :])
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
