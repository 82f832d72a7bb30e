"""Blocks that are alike are run once by the exporter: what it does for one of them holds for the others.

A deep network is mostly one block many times (the layers of a transformer, a stage of a residual network), and an
export takes as long as all of them together. Where the children of a `ModuleList` or `Sequential` differ in their
weights only, the first is run as always; in place of the others the exporter sees one opaque operation with results of
the same form, and afterwards the nodes of the first are put there, with the weights and the module paths of the other
(`repeated_nodes`). The exporter does not see the weights of the others either: to it each weight is work.

What a block computes may depend on its settings, its arguments and the form of its weights. Settings in which the
blocks differ (the number of a layer) are watched while a block runs: only those that are read tell blocks apart.
A block that is called with arguments of a new form, or has another value of a setting that is read, is run as well,
and is the pattern for those that are like it. What is not plainly a repetition (hooks, shared weights, a second call,
state that a call leaves behind) is run as always; where the graph shows that a block was none (it uses values from
elsewhere, writes to its arguments, has sizes that depend on values), the model is exported again as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from skipscope.trace.alike_blocks import (
    Kind,
    Setting,
    UnlikeError,
    each_once,
    form_of,
    form_of_call,
    kinds_of,
    state_of,
)
from skipscope.trace.repeated_nodes import Made, Marks, Pattern, put_back
from skipscope.trace.watched_settings import watching

NAMESPACE = "skipscope"
while hasattr(getattr(torch.ops, NAMESPACE), "enter_block"):
    NAMESPACE += "_again"  # the module was imported before, and torch keeps its operators
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_library.define("enter_block(Tensor[] x, int pattern) -> ()")
_library.define("leave_block(Tensor[] x, int pattern) -> ()")
_library.define("repeat_block(Tensor[] x, int pattern, str path) -> Tensor[]")
_MARKS = Marks(
    *(getattr(getattr(torch.ops, NAMESPACE), name).default for name in ("enter_block", "leave_block", "repeat_block"))
)
for _mark in (_MARKS.enter, _MARKS.leave):
    fx.node.has_side_effect(_mark)  # else it is taken out of the graph as dead
_patterns: dict[int, Pattern] = {}  # of all attempts that are running, by numbers that no two have
_numbers = itertools.count()


def export_blocks_once(model: nn.Module, export: Callable[[], ExportedProgram]) -> ExportedProgram:
    """What `export` returns for the model, but for the names of nodes."""
    kinds = kinds_of(model)
    if not kinds:
        return export()
    guesses: list[set[Setting] | None] = [_telling_settings(kind) for kind in kinds]
    while True:
        hidden = {p: b for kind, telling in zip(kinds, guesses, strict=True) for p, b in _repetitions(kind, telling)}
        attempt = _Attempt(kinds, hidden)
        try:
            with attempt.in_place():
                exported = export()
            attempt.put_back(exported)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            # A weight may also be looked for by code outside its block.
            if attempt.missed is None and not (hidden and isinstance(error, AttributeError)):
                if not attempt.repetitions:
                    raise  # the model itself cannot be exported
                return export()
            guesses = [
                guess
                if attempt.missed is not None and attempt.missed not in kind.blocks
                else attempt.better(kind, guess)
                for kind, guess in zip(kinds, guesses, strict=True)
            ]
        else:
            return exported


def _telling_settings(kind: Kind) -> set[Setting]:
    """The settings that are likely to be read: rates, and those with one value in several blocks (every other layer is
    shifted). One that is different in each block is most often the number of a layer, and is not read."""

    def is_telling(values: Collection[Any]) -> bool:
        rates = any(isinstance(value, tuple) and value[0] is float for value in values)
        return rates or len(set(values)) < len(values)

    return {setting for setting, values in kind.differing.items() if is_telling(values.values())}


def _repetitions(kind: Kind, telling: set[Setting] | None) -> Iterator[tuple[str, nn.Module]]:
    """The blocks that will be repetitions of others if these settings are read; None: none of them."""
    if telling is None:
        return
    found: set[tuple[Any, ...]] = set()
    for path, block in kind.blocks.items():
        likeness = tuple(values[path] for setting, values in kind.differing.items() if setting in telling)
        if likeness in found:
            yield path, block
        found.add(likeness)


class _Attempt:
    """hidden: blocks whose weights the exporter does not see."""

    def __init__(self, kinds: Sequence[Kind], hidden: dict[str, nn.Module]) -> None:
        self._kinds, self._hidden = kinds, hidden
        self.patterns: list[Pattern] = []
        self.missed: str | None = None  # a hidden block that had to be run: the attempt is lost
        self._called: set[str] = set()
        self._repeated: set[str] = set()

    @property
    def repetitions(self) -> int:
        return len(self._repeated)

    def better(self, kind: Kind, guess: set[Setting] | None) -> set[Setting] | None:
        """Which settings tell blocks apart, after a wrong guess: those that were read; None where that is no news."""
        read = {setting for pattern in self.patterns if pattern.kind is kind for setting in pattern.read}
        return None if guess is None or read <= guess else guess | read

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The forward of every block is ours."""
        blocks = [(kind, path, block) for kind in self._kinds for path, block in kind.blocks.items()]
        try:
            with _without_weights(self._hidden.values()):
                for kind, path, block in blocks:
                    vars(block)["forward"] = self._forward(kind, path, block.forward)
                yield
        finally:
            for _, _, block in blocks:
                vars(block).pop("forward", None)
            for pattern in self.patterns:
                _patterns.pop(pattern.number, None)

    def _forward(self, kind: Kind, path: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if path in self._hidden:
                self.missed = path
                raise UnlikeError("a block without its weights is no repetition")
            return own(*args, **kwargs)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if path in self._repeated:
                self.missed = path if path in self._hidden else None
                raise UnlikeError("a block is called again, and what is in it is to be numbered as called again")
            tensors = each_once(pytree.tree_leaves((args, kwargs)))
            try:
                form = form_of_call(args, kwargs)
            except UnlikeError:
                return run(*args, **kwargs)
            if path in self._called or not tensors:
                return run(*args, **kwargs)
            self._called.add(path)
            for pattern in self.patterns:
                if pattern.kind is kind and pattern.form == form and pattern.holds_for(path):
                    if pattern.structure is None:
                        return run(*args, **kwargs)
                    return self._repeat(pattern, path, tensors)
            if path in self._hidden:
                return run(*args, **kwargs)
            self.patterns.append(Pattern(next(_numbers), path, kind, form))
            _patterns[self.patterns[-1].number] = self.patterns[-1]
            return self._run(self.patterns[-1], own, args, kwargs)

        return forward

    def _run(self, pattern: Pattern, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = each_once(leaves)
        block = pattern.kind.blocks[pattern.path]
        before = state_of(block)
        _MARKS.enter(tensors, pattern.number)
        with watching(block, pattern.kind.differing, pattern.read):
            result = own(*args, **kwargs)
        found, structure = pytree.tree_flatten(result)
        _MARKS.leave([leaf for leaf in found if isinstance(leaf, Tensor)] or tensors, pattern.number)
        after = pytree.tree_leaves((args, kwargs))
        untouched = len(after) == len(leaves) and all(a is b for a, b in zip(after, leaves, strict=True))
        try:
            form = form_of_call(args, kwargs)
            made = [form_of(leaf) for leaf in found]
        except UnlikeError:
            return result
        places = {id(tensor): i for i, tensor in enumerate(tensors)}
        pattern.results = [places.get(id(leaf), Made(leaf)) for leaf in found]
        if made and untouched and form == pattern.form and state_of(block) == before:
            pattern.structure = structure
        return result

    def _repeat(self, pattern: Pattern, path: str, tensors: list[Tensor]) -> Any:
        self._repeated.add(path)
        made = iter(_MARKS.repeat(tensors, pattern.number, path))
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
        put_back(exported, self.patterns, self._hidden, _MARKS, self.repetitions)


@contextmanager
def _without_weights(blocks: Iterable[nn.Module]) -> Iterator[None]:
    kept = [
        (module, place, vars(module)[place])
        for block in blocks
        for module in block.modules()
        for place in ("_parameters", "_buffers")
    ]
    try:
        for module, place, _ in kept:
            vars(module)[place] = {}
        yield
    finally:
        for module, place, weights in kept:
            vars(module)[place] = weights


def _nothing(x: Sequence[Tensor], pattern: int) -> None:
    return None


def _of_its_form(x: Sequence[Tensor], pattern: int, path: str) -> list[Tensor]:
    made = [result.value for result in _patterns[pattern].results if isinstance(result, Made)]
    return [
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        for value in made
        if isinstance(value, Tensor)
    ]


torch.library.register_fake(f"{NAMESPACE}::enter_block", _nothing, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::leave_block", _nothing, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::repeat_block", _of_its_form, lib=_library)
