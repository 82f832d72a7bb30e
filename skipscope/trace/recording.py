"""One forward pass of a model in Python, call by call.

For a model that cannot be exported: the calls of torch functions that its code makes, and the calls of the modules that
the user named, each as one call whatever happens inside. A `Recorder` keeps them with their values; a `Follower` runs
the model again and shows, or replaces, the values at the places that a recording has found.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.module_hooks import Call, following
from skipscope.trace.freshness import version_of
from skipscope.trace.inputs import Inputs, tensors_of
from skipscope.trace.precision import OtherPrecision
from skipscope.trace.undisturbed import unconverted, undisturbed

COPYING_FUNCTIONS = frozenset(("clone", "contiguous", "to", "type_as"))
NEUTRAL_NUMBERS = {"add": 0, "sub": 0, "mul": 1, "div": 1}  # a number that changes nothing: `sum([x, y])` starts with 0


@dataclass(frozen=True)
class Place:
    """A tensor of a pass: one of those that a call returned or wrote to; of the inputs where `call` is negative."""

    call: int
    leaf: int = 0


@dataclass(frozen=True)
class Made:
    """A call that was made, with its tensors as places; those that come from nowhere (weights) as they are."""

    name: str
    function: Callable[..., Any] | None  # None for a named module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    written: tuple[int, ...]  # which of its tensors it wrote to
    values: list[Tensor]  # what it returned, then what it wrote to
    paths: tuple[Place, ...]  # its arguments that are floating-point tensors of this pass
    stale: bool  # an argument had been changed through a view of it

    @property
    def reads(self) -> list[Place]:
        return [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Place)]


@dataclass(frozen=True)
class NamedCall:
    """One call of a named module: its own values, and where it stands among all calls."""

    path: str
    time: int  # how many calls of the same module were before it
    call: int
    place: Place | None  # of its entry, where that was made in this pass
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any

    @property
    def entry(self) -> Tensor:
        return state_of((self.args, self.kwargs), "gets")

    @property
    def exit(self) -> Tensor:
        return state_of(self.output, "returns")


@dataclass(frozen=True)
class Recording:
    inputs: list[Tensor]
    calls: dict[int, Made]  # those that gave a tensor, by their number among all
    named: list[NamedCall]
    output: Any

    def value(self, place: Place) -> Tensor:
        return self.inputs[-1 - place.call] if place.call < 0 else self.calls[place.call].values[place.leaf]

    def only(self, calls: Collection[int]) -> Recording:
        """The same with the values of these calls alone."""
        kept = {i: made if i in calls else replace(made, values=[]) for i, made in self.calls.items()}
        return replace(self, calls=kept)


def state_of(tree: Any, verb: str) -> Tensor:
    """The first float tensor of arguments or of an output."""
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() > 0:
            return leaf
    raise TraceError(f"a named module {verb} no float tensor, so it cannot be a residual unit; name other modules")


def with_state(tree: Any, state: Tensor) -> Any:
    """The same structure with its first float tensor replaced."""
    return exchanged(tree, state_of(tree, "gets"), state)


def exchanged(tree: Any, old: Tensor, new: Tensor) -> Any:
    return pytree.tree_map_only(Tensor, lambda leaf: new if leaf is old else leaf, tree)


class Watch(TorchFunctionMode):
    """Sees the calls of a pass. Named modules report by hooks; what happens inside them is not looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0  # of calls of functions and named modules
        self.order = 0  # of calls of named modules
        self.depth = 1  # of calls that are not looked at: so far the model's own forward has not begun

    def begin(self) -> None:
        self.depth -= 1

    def end(self) -> None:
        self.depth += 1

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.depth:
            return function(*args, **(kwargs or {}))
        self.count += 1
        return self.called(self.count - 1, function, args, kwargs or {})

    def before(self, path: str, args: Any, kwargs: Any) -> Any:
        self.depth += 1
        return self.entered(path, args, kwargs) if self.depth == 1 else None

    def after(self, path: str, args: Any, kwargs: Any, output: Any) -> Any:
        replaced = None
        if self.depth == 1:
            self.count, self.order = self.count + 1, self.order + 1
            replaced = self.left(self.count - 1, path, args, kwargs, output)
        self.depth -= 1
        return replaced

    def called(self, index: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        raise NotImplementedError

    def entered(self, path: str, args: Any, kwargs: Any) -> Any:
        """New arguments of a named module, or None."""
        raise NotImplementedError

    def left(self, index: int, path: str, args: Any, kwargs: Any, output: Any) -> Any:
        """A new output of a named module, or None."""
        raise NotImplementedError


class Recorder(Watch):
    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.calls: dict[int, Made] = {}
        self.named: list[NamedCall] = []
        self._home: dict[int, tuple[Place, int]] = {}  # by identity; with the number of writes to it
        self._alive: list[Any] = []  # so that no identity is used twice
        self._entering: Any = None
        # Code that runs later may change a tensor in place: what is kept is what came.
        self.inputs = [tensor.clone() for tensor in inputs]
        for i, tensor in enumerate(inputs):
            self._settle(tensor, Place(-1 - i))

    def recording(self, output: Any) -> Recording:
        return Recording(self.inputs, self.calls, self.named, output)

    def called(self, index: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        before = self._noted((args, kwargs))
        result = function(*args, **kwargs)
        self._keep(index, getattr(function, "__name__", str(function)), function, (args, kwargs), before, result)
        return result

    def entered(self, path: str, args: Any, kwargs: Any) -> None:
        cloned = pytree.tree_map_only(Tensor, Tensor.clone, (args, kwargs))
        place, _ = self._home.get(id(state_of((args, kwargs), "gets")), (None, 0))
        self._entering = (cloned, place, self._noted((args, kwargs)))

    def left(self, index: int, path: str, args: Any, kwargs: Any, output: Any) -> None:
        (came, named), place, before = self._entering
        time = sum(call.path == path for call in self.named)
        gone = pytree.tree_map_only(Tensor, Tensor.clone, output)
        self.named.append(NamedCall(path, time, index, place, came, named, gone))
        self._keep(index, path, None, (args, kwargs), before, output)

    def _noted(self, tree: Any) -> list[tuple[Place | None, int, bool]]:
        """Of every tensor: its place, its number of writes, and whether it was changed behind its place's back."""
        noted = []
        for tensor in tensors_of(tree):
            place, version = self._home.get(id(tensor), (None, 0))
            noted.append((place, version_of(tensor), place is not None and version_of(tensor) != version))
        return noted

    def _keep(self, index: int, name: str, function: Any, arguments: Any, before: Any, result: Any) -> None:
        tensors, returned = tensors_of(arguments), tensors_of(result)
        written = tuple(i for i, t in enumerate(tensors) if version_of(t) != before[i][1])
        values = [*returned, *(tensors[i] for i in written if not any(tensors[i] is v for v in returned))]
        if not written and all(any(value is tensor for tensor in tensors) for value in values):
            return  # nothing, or what was handed in
        places = {id(t): place for t, (place, *_) in zip(tensors, before, strict=True) if place is not None}
        args, kwargs = pytree.tree_map_only(Tensor, lambda t: places.get(id(t), t), arguments)
        paths = tuple(places[id(t)] for t in tensors if t.is_floating_point() and id(t) in places)
        stale = any(changed for *_, changed in before)
        self.calls[index] = Made(name, function, args, kwargs, written, [v.clone() for v in values], paths, stale)
        copied = not stale and _is_copy(name, arguments[0]) and _alike(tensors[0], values[0])
        if copied and (place := places.get(id(tensors[0]))) is not None:
            self._settle(values[0], place)
            return
        for leaf, value in enumerate(values):
            self._settle(value, Place(index, leaf))

    def _settle(self, tensor: Tensor, place: Place) -> None:
        self._home[id(tensor)] = (place, version_of(tensor))
        self._alive.append(tensor)


def _is_copy(name: str, args: Sequence[Any]) -> bool:
    if not args or not isinstance(args[0], Tensor):
        return False
    number = args[1] if len(args) == 2 and isinstance(args[1], int | float) else None
    return name in COPYING_FUNCTIONS or (number is not None and number == NEUTRAL_NUMBERS.get(name))


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device


class HookedModel:
    """A model that runs with hooks on named modules, which see every call and may change what goes in and out."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        """paths: of the named modules."""
        self.model, self.paths = model, checked_paths(model, paths)
        self.precision = OtherPrecision(model)

    def recorded(self, inputs: Inputs, functions: bool) -> Recording:
        """functions: also the calls of functions between the named modules."""
        recorder = Recorder(inputs.tensors())
        with torch.no_grad():
            output = self.run(inputs.args, inputs.kwargs, recorder, functions, self.precision.dtype)
        missing = set(self.paths) - {call.path for call in recorder.named}
        if missing:
            raise InputError(
                f"at this batch the model did not call {', '.join(sorted(missing))}; name modules that its forward "
                "calls whatever the batch"
            )
        return recorder.recording(output)

    def run(self, args: Any, kwargs: Any, watch: Watch, functions: bool, dtype: torch.dtype) -> Any:
        """The model's output. functions: the watch also sees the calls of functions between the named modules."""
        with self.quietly(), self._hooked(watch), ExitStack() as stack:
            if functions:
                stack.enter_context(watch)
            return self.precision.call("", args, kwargs, dtype)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """The user's model is left as it was; gradients are recorded if they were before."""
        grad = torch.is_grad_enabled()
        with undisturbed(self.model), unconverted(self.model), torch.set_grad_enabled(grad):
            yield

    @contextmanager
    def _hooked(self, watch: Watch) -> Iterator[None]:
        def before(call: Call) -> Any:
            return watch.before(call.path, call.args, call.kwargs)

        def after(call: Call, output: Any) -> Any:
            return watch.after(call.path, call.args, call.kwargs, output)

        named = {path: self.model.get_submodule(path) for path in self.paths}
        with (
            following({"": self.model}, entered=lambda call: watch.begin(), left=lambda call, output: watch.end()),
            following(named, entered=before, left=after),
        ):
            yield


def checked_paths(model: nn.Module, paths: Sequence[str]) -> list[str]:
    """An InputError where a path names no module of the model, or one inside another."""
    known = dict(model.named_modules())
    for path in paths:
        if path not in known or not path:
            near = ", ".join(difflib.get_close_matches(path, list(known), 3)) or "see model.named_modules()"
            raise InputError(f"the model has no module {path!r}; did you mean: {near}")
        if any(other != path and path.startswith(f"{other}.") for other in paths):
            raise InputError(f"{path!r} lies inside another named unit; name one of the two")
    if not paths:
        raise InputError("units=[] names no module; pass paths such as ['layer1.0', 'layer1.1']")
    return list(paths)
