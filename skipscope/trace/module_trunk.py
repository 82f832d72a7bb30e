"""A trunk on modules that the user named, for a model that cannot be exported.

The model itself runs, with hooks on the named modules. A named module is exported alone where that works, and then has
branch, skip and tail like any other unit; where it does not, the module is called as it is, its skip is taken to be the
identity (the notes say so), and its branch is what it adds. The code between the named modules is not taken apart:
a span runs the model from the start, puts the state in where it begins and stops where it ends.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.trace.export import export
from skipscope.trace.graph_trunk import GraphTrunk, GraphUnit
from skipscope.trace.inputs import Inputs
from skipscope.trace.structure import Structure
from skipscope.trace.trunk import Path, Point, Segment, Span, Stage, Trunk, Unit
from skipscope.trace.undisturbed import undisturbed


@dataclass(frozen=True)
class Call:
    """One call of a named module at a point: its arguments, and the leaves of them that are its states."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any

    @property
    def entry(self) -> Tensor:
        return _state((self.args, self.kwargs), "gets")

    @property
    def exit(self) -> Tensor:
        return _state(self.output, "returns")

    def with_entry(self, state: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return _with_state((self.args, self.kwargs), state)


def _state(tree: Any, verb: str) -> Tensor:
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() > 0:
            return leaf
    raise TraceError(f"a named module {verb} no float tensor, so it cannot be a residual unit; name other modules")


def _with_state(tree: Any, state: Tensor) -> Any:
    """The same structure with its first float tensor replaced."""
    old = _state(tree, "gets")
    return pytree.tree_map_only(Tensor, lambda leaf: state if leaf is old else leaf, tree)


class _Stop(Exception):  # noqa: N818 - carries a state out of a forward pass; no error
    def __init__(self, state: Tensor) -> None:
        self.state = state


class ModuleSpan(Span):
    trunk: ModuleTrunk
    in_any_type = False

    def __init__(self, trunk: ModuleTrunk, name: str, first: ModuleUnit, last: ModuleUnit) -> None:
        self.trunk, self.name, self.first, self.last = trunk, name, first, last

    def __call__(self, state: Tensor) -> Tensor:
        return self.trunk.run_between(self.first, self.last, state)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.trunk.at_point(point, self)

    def argument(self, point: Point) -> Tensor:
        return point.entry(self.first)

    @property
    def entry_shape(self) -> tuple[int, ...]:
        return self.first.entry_shape

    @property
    def exit_shape(self) -> tuple[int, ...]:
        return self.last.exit_shape

    @property
    def batch_axis(self) -> int:
        return self.first.batch_axis


NO_SUM = "no sum in it joins its input with a branch"  # why a named module is no residual unit


class ModulePath(Path):
    """A path of a named module: one of the graph inside it, or what can be said of it as a whole."""

    def __init__(
        self, unit: ModuleUnit, what: str, function: Callable[[Tensor], Tensor], operations: list[str]
    ) -> None:
        self.unit, self.name = unit, f"{what} of {unit.name}"
        self.function, self.operations = function, operations
        self.in_any_type = unit.in_any_type
        self._after_sum = what == "tail"

    def __call__(self, state: Tensor) -> Tensor:
        return self.function(state)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.unit.trunk.at_point(point, self)

    def argument(self, point: Point) -> Tensor:
        return point.sum(self.unit) if self._after_sum else point.entry(self.unit)


class ModuleUnit(Unit):
    trunk: ModuleTrunk
    parent = None
    stage: int | None = None

    def __init__(
        self, trunk: ModuleTrunk, index: int, path: str, time: int, call: Call, inside: GraphUnit | None
    ) -> None:
        self.trunk, self.index, self.path, self.time, self.inside = trunk, index, path, time, inside
        self.name = path if time == 0 else f"{path}#{time + 1}"
        self.in_any_type = inside is not None
        module = trunk.model.get_submodule(path)
        self.parameter_names = [f"{path}.{name}" for name, _ in module.named_parameters()]
        axis = trunk.batch_axis_of(call.entry)
        if axis is None or trunk.batch_axis_of(call.exit) is None:
            raise TraceError(f"the states of {path} have no axis of the batch's size; name other modules")
        self._axis, self._entry, self._exit = axis, tuple(call.entry.shape), tuple(call.exit.shape)
        self._exit_axis = trunk.batch_axis_of(call.exit) or 0
        extra = [leaf for leaf in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Tensor)]
        self.context = [f"argument {i} of {path}" for i in range(1, len(extra))]
        if inside is not None:
            self.kind, self.branches = inside.kind, inside.branches
            self.branch, self.skip, self.tail = (
                ModulePath(self, what, path, path.operations)
                for what, path in (("branch", inside.branch), ("skip", inside.skip), ("tail", inside.tail))
            )
        else:
            self.kind, self.branches = "identity", 1
            if self._entry != self._exit:
                raise TraceError(
                    f"{path} changes the shape of its state from {self._entry} to {self._exit} and cannot be exported, "
                    "so its skip cannot be told from its branch; leave it out of the named units"
                )
            self.skip = ModulePath(self, "skip", lambda state: state, [])
            self.tail = ModulePath(self, "tail", lambda state: state, [])
            self.branch = ModulePath(self, "branch", lambda state: self(state) - state, [type(module).__name__])

    def __call__(self, state: Tensor) -> Tensor:
        if self.inside is not None:
            return self.inside(state)
        return self.trunk.run_module(self, state)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.trunk.at_point(point, self)

    def argument(self, point: Point) -> Tensor:
        return point.entry(self)

    @property
    def batch_axis(self) -> int:
        return self._axis

    @property
    def entry_shape(self) -> tuple[int, ...]:
        return tuple(size for i, size in enumerate(self._entry) if i != self._axis)

    @property
    def exit_shape(self) -> tuple[int, ...]:
        return tuple(size for i, size in enumerate(self._exit) if i != self._exit_axis)


class ModuleSegment(ModuleSpan, Segment):
    kind = "unit"


class ModulePoint(Point):
    def __init__(
        self, units: Sequence[ModuleUnit], calls: Sequence[Call], batch: int, inputs: Inputs, output: Any
    ) -> None:
        self.units, self.calls, self.batch, self.inputs, self.output = units, list(calls), batch, inputs, output

    def entry(self, unit: Unit) -> Tensor:
        return self.calls[unit.index].entry

    def exit(self, unit: Unit) -> Tensor:
        return self.calls[unit.index].exit

    def sum(self, unit: Unit) -> Tensor:
        entry = self.entry(unit)
        return unit.skip(entry) + unit.branch(entry)

    def take(self, samples: Sequence[int]) -> None:
        return None

    def gradients(self, scalar: Callable[[Any], Tensor]) -> list[Tensor | None]:
        trunk = self.units[0].trunk
        assert isinstance(trunk, ModuleTrunk)
        return trunk.gradients(self.inputs, scalar)

    def first_not_finite(self) -> str:
        states = ((f"the {what} of {u.name}", state(u)) for u in self.units for what, state in self._states())
        return next((where for where, state in states if not torch.isfinite(state).all()), "")

    def _states(self) -> list[tuple[str, Callable[[Unit], Tensor]]]:
        return [("entry", self.entry), ("exit", self.exit)]


class ModuleTrunk(Trunk):
    point: ModulePoint | None = None
    units: list[ModuleUnit]

    def __init__(
        self, model: nn.Module, inputs: Inputs, paths: Sequence[str], notes: Sequence[str], dtype: torch.dtype | None
    ) -> None:
        super().__init__(inputs.axis, notes, dtype)
        self.model = model
        self._batch = inputs.batch
        self._hooks_active = True  # off while a unit calls its own module
        self._paths = _checked(model, paths)
        keys, calls, output = self._recorded(inputs)
        self._keys = keys
        self.left_out = []
        units: list[ModuleUnit] = []
        for index, ((path, time), call) in enumerate(zip(keys, calls, strict=True)):
            inside, why = _taken_apart(model.get_submodule(path), call, inputs)
            if inside is None:
                self._notes.append(
                    f"{path} was not taken apart ({why}): its skip is taken to be the identity, without a tail"
                )
            units.append(ModuleUnit(self, index, path, time, call, inside))
            units[-1].without_skip = why == NO_SUM
        self.units = units
        self.point = ModulePoint(units, calls, inputs.batch, inputs, output)
        self.stages = self._by_shape(units)
        self.segments = [ModuleSegment(self, unit.name, unit, unit) for unit in units]
        self._notes.append("units were named by the user; the code between them is not taken apart")

    # -- running the model

    def at(self, x: Any) -> ModulePoint:
        inputs = self.inputs(x)
        keys, calls, output = self._recorded(inputs)
        if keys != self._keys:
            now, then = (", ".join(path for path, _ in some) for some in (keys, self._keys))
            raise InputError(
                f"at this batch the model called {now}, at the trace {then}; trace it again with this batch"
            )
        self.point = ModulePoint(self.units, calls, inputs.batch, inputs, output)
        for unit, call in zip(self.units, calls, strict=True):
            if unit.inside is not None:
                unit.inside.trunk.at(Inputs(call.args, call.kwargs, unit.batch_axis, inputs.batch))
        return self.point

    def replay(self, x: Any) -> Any:
        """The model with each named module replaced by its unit."""
        inputs = self.inputs(x)
        self.at(inputs)
        position = iter(self.units)
        entries: list[Tensor] = []

        def keep(path: str, args: Any, kwargs: Any) -> None:
            entries.append(_state((args, kwargs), "gets").clone())  # the module may change it in place

        def replaced(path: str, args: Any, kwargs: Any, output: Any) -> Any:
            return _with_state(output, next(position)(entries.pop()))

        return self._run(inputs, before=keep, after=replaced)

    def at_point(self, point: Point, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Named modules run with the arguments of the trunk's last point: another point is a mistake."""
        if point is not self.point:
            raise TraceError(
                "this point is not the trunk's last one; call trunk.at(x) again and use the point it returns"
            )
        return function

    def run_between(self, first: ModuleUnit, last: ModuleUnit, state: Tensor) -> Tensor:
        if first is last:
            return first(state)
        point = self._current_point(state, first)
        before, after = iter(self.units), iter(self.units)

        def enter(path: str, args: Any, kwargs: Any) -> Any:
            return _with_state((args, kwargs), state.clone()) if next(before) is first else None

        def leave(path: str, args: Any, kwargs: Any, output: Any) -> Any:
            if next(after) is last:
                raise _Stop(_state(output, "returns"))
            return None

        try:
            self._run(point.inputs, before=enter, after=leave)
        except _Stop as stop:
            return stop.state
        raise TraceError(f"{last.name} did not run")

    def gradients(self, inputs: Inputs, scalar: Callable[[Any], Tensor]) -> list[Tensor | None]:
        states: list[Tensor] = []

        def follow(path: str, args: Any, kwargs: Any) -> Any:
            state = _state((args, kwargs), "gets")
            state = state if state.requires_grad else state.detach().requires_grad_()
            states.append(state)
            return _with_state((args, kwargs), state.clone())  # the module may change it in place

        def last(path: str, args: Any, kwargs: Any, output: Any) -> None:
            exits[:] = [_state(output, "returns")]

        exits: list[Tensor] = []
        with torch.enable_grad():
            output = self._run(inputs, before=follow, after=last)
            return list(torch.autograd.grad(scalar(output), states + exits, allow_unused=True))

    def run_module(self, unit: ModuleUnit, state: Tensor) -> Tensor:
        """One named module as it is, at a state; its other arguments are those of the last point."""
        args, kwargs = self._current_point(state, unit).calls[unit.index].with_entry(state.clone())
        module = self.model.get_submodule(unit.path)
        grad, hooks_were_active, self._hooks_active = torch.is_grad_enabled(), self._hooks_active, False
        try:
            with undisturbed(self.model), torch.set_grad_enabled(grad):
                return _state(module(*args, **kwargs), "returns")
        finally:
            self._hooks_active = hooks_were_active

    def span(self, first: int | str, last: int | str) -> ModuleSpan:
        a, b = self[first], self[last]
        assert isinstance(a, ModuleUnit)
        assert isinstance(b, ModuleUnit)
        if a.index > b.index:
            raise TraceError(f"{b.name} runs before {a.name}; name the earlier unit first")
        return ModuleSpan(self, f"{a.name} to {b.name}", a, b)

    def batch_axis_of(self, state: Tensor) -> int | None:
        axes = [axis for axis, size in enumerate(state.shape) if size == self._batch]
        return self._axis if self._axis in axes else next(iter(axes), None)

    def _current_point(self, state: Tensor, unit: ModuleUnit) -> ModulePoint:
        assert self.point is not None
        if state.shape[unit.batch_axis] != self.point.batch:
            raise InputError(
                f"{unit.name} runs with the other inputs of the last point, a batch of {self.point.batch}, but the "
                f"state has {state.shape[unit.batch_axis]}; call trunk.at(x) with the batch that this state belongs to"
            )
        return self.point

    def _recorded(self, inputs: Inputs) -> tuple[list[tuple[str, int]], list[Call], Any]:
        """(path, how many times before) and arguments of every call of a named module, in the order of their ends."""
        keys: list[tuple[str, int]] = []
        calls: list[Call] = []
        arguments: list[Any] = []

        def keep(path: str, args: Any, kwargs: Any) -> None:
            # A module may change its input in place, and later code its output: the point holds what came and went.
            arguments.append(pytree.tree_map_only(Tensor, Tensor.clone, (args, kwargs)))

        def record(path: str, args: Any, kwargs: Any, output: Any) -> None:
            keys.append((path, sum(seen == path for seen, _ in keys)))
            came, named = arguments.pop()
            calls.append(Call(came, named, pytree.tree_map_only(Tensor, Tensor.clone, output)))

        with torch.no_grad():
            output = self._run(inputs, before=keep, after=record)
        missing = set(self._paths) - {path for path, _ in keys}
        if missing:
            raise InputError(
                f"the model never called {', '.join(sorted(missing))}; name modules that run in its forward"
            )
        return keys, calls, output

    def _run(self, inputs: Inputs, before: Any = None, after: Any = None) -> Any:
        grad = torch.is_grad_enabled()
        with undisturbed(self.model), torch.set_grad_enabled(grad), self._hooked(before, after):
            return self.model(*inputs.args, **inputs.kwargs)

    @contextmanager
    def _hooked(self, before: Any, after: Any) -> Iterator[None]:
        def when_active(function: Any, path: str) -> Any:
            return lambda module, *rest: function(path, *rest) if self._hooks_active else None

        handles = []
        for path in self._paths:
            module = self.model.get_submodule(path)
            if before is not None:
                handles.append(module.register_forward_pre_hook(when_active(before, path), with_kwargs=True))
            if after is not None:
                handles.append(module.register_forward_hook(when_active(after, path), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _by_shape(self, units: Sequence[ModuleUnit]) -> list[Stage]:
        runs: list[list[ModuleUnit]] = []
        for unit in units:
            if runs and runs[-1][-1].exit_shape == unit.exit_shape:
                runs[-1].append(unit)
            else:
                runs.append([unit])
            unit.stage = len(runs) - 1
        return [Stage(self, i, run) for i, run in enumerate(runs)]


def _checked(model: nn.Module, paths: Sequence[str]) -> list[str]:
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


def _taken_apart(module: nn.Module, call: Call, inputs: Inputs) -> tuple[GraphUnit | None, str]:
    """The unit inside a named module: the one whose entry and exit are the module's own; else why there is none."""
    axis = next((a for a, size in enumerate(call.entry.shape) if size == inputs.batch), 0)
    own = Inputs(call.args, call.kwargs, axis, inputs.batch)
    try:
        program, _ = export(module, own)
    except (TraceError, InputError) as error:
        return None, str(error).split(". Name the modules")[0]
    trunk = GraphTrunk(Structure(program), axis, [], None)
    for part in trunk.structure.parts:
        whole = trunk.structure.ended_at_output(part)
        if part.region.entry in program.inputs and whole is not None:
            trunk.at(own)
            return GraphUnit(trunk, 0, whole), ""
    return None, NO_SUM
