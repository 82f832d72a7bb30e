"""A trunk on modules that the user named, for a model that cannot be exported.

The model itself runs, with hooks on the named modules. A named module is exported (or recorded) alone where that works.
Where it is one unit, from its input to its output, it has branch, skip and tail like any other. Where it is not, the
code around it is looked at: a sum of its output with the state before it makes a unit around it (`outer_sum`). Where
there is none, the units that it holds are the trunk's (a block of a transformer: attention and feed-forward). Where it
holds none either, the module is called as it is, its skip is taken to be the identity (the notes say so), and its
branch is what it adds. The rest of the code between the named modules is not taken apart: a span runs the model from
the start, puts the state in where it begins and stops where it ends; in float64 on converted weights.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from skipscope.errors import InputError, SkipscopeError, TraceError
from skipscope.trace.batch_axes import ModuleAxes
from skipscope.trace.export import does_not_run
from skipscope.trace.follower import Follower, Meeting
from skipscope.trace.freshness import WhileFresh
from skipscope.trace.inputs import Inputs
from skipscope.trace.inside import NO_SUM, Exports, Inner
from skipscope.trace.module_unit import (
    Around,
    Form,
    Inside,
    ModulePoint,
    ModuleSegment,
    ModuleSpan,
    ModuleUnit,
    Whole,
    Within,
)
from skipscope.trace.outer_sum import OuterPiece, OuterSum, outer_sum, with_tails
from skipscope.trace.program import Program
from skipscope.trace.recording import HookedModel, NamedCall, Recording, state_of, with_state
from skipscope.trace.trunk import Point, Stage, Trunk, Unit
from skipscope.trace.undisturbed import undisturbed


class _Stop(Exception):  # noqa: N818 - carries a state out of a forward pass; no error
    def __init__(self, state: Tensor) -> None:
        self.state = state


class ModuleTrunk(Trunk):
    point: ModulePoint | None = None
    units: list[ModuleUnit]

    def __init__(
        self, model: nn.Module, inputs: Inputs, paths: Sequence[str], notes: Sequence[str], dtype: torch.dtype | None
    ) -> None:
        super().__init__(inputs.axis, notes, dtype)
        self.model, self._hooked = model, HookedModel(model, paths)
        self.precision = self._hooked.precision
        self._types = [tensor.dtype for tensor in inputs.tensors()]
        self.left_out = []
        recording = self._hooked.recorded(inputs, functions=True)
        self._keys = _keys(recording)
        axes = ModuleAxes(partial(self._hooked.recorded, functions=True), inputs, recording)
        forms, sums = self._forms(inputs, recording, axes)
        order = sorted(range(len(forms)), key=lambda i: _end(recording, i, sums[i]))
        self._held = self._units_of(recording, [(i, forms[i]) for i in order])
        self.units = [unit for units in self._held for unit in units]
        for unit in self.units:
            unit.without_skip = isinstance(unit.form, Whole) and self._why[unit.order] == NO_SUM
        self.point = self._point(inputs, recording, [sums[unit.order] for unit in self.units])
        for unit in self.units:
            if isinstance(unit.form, Within):
                unit.settle(*unit.form.shapes(), *unit.form.axes())
            else:
                ends = (tuple(self.point.entry(unit).shape), tuple(self.point.exit(unit).shape))
                unit.settle(*ends, *axes.of_unit(unit.order, sums[unit.order]))
        self.stages = self._by_shape()
        self.segments = [ModuleSegment(self, unit.name, unit, unit) for unit in self.units]
        self._say()

    # -- what the named modules are

    def _forms(
        self, inputs: Inputs, recording: Recording, axes: ModuleAxes
    ) -> tuple[list[list[Form]], list[OuterSum | None]]:
        """Of every call of a named module: the forms of its units, and the sum around it."""
        exports, sums = Exports(), []
        forms: list[list[Form]] = []
        self._why: list[str] = []
        self._fixed: list[tuple[str, str]] = []  # modules whose graphs hold for some batches only, and the note of it
        for order, call in enumerate(recording.named):
            axis = axes.of_module(order)
            module = self.model.get_submodule(call.path)
            inside = exports.inside(module, Inputs(call.args, call.kwargs, axis, inputs.batch))
            is_unit = isinstance(inside, Inner) and inside.whole
            around = None if is_unit else outer_sum(recording, call)
            if isinstance(inside, Inner) and not isinstance(around, OuterSum):
                around = None
                forms.append([(Inside if is_unit else Within)(unit, inside) for unit in inside.units])
                self._why.append("")
                if inside.note:
                    self._fixed.append((call.path, inside.note))
            else:
                why = NO_SUM if isinstance(inside, Inner) else inside
                forms.append([self._form_of(call, why, around)])
                self._why.append(why)
            sums.append(around if isinstance(around, OuterSum) else None)
        return forms, with_tails(recording, sums)

    @staticmethod
    def _form_of(call: NamedCall, why: str, around: OuterSum | str | None) -> Form:
        """The form of a module without units inside. why: there are none."""
        if isinstance(around, str):
            raise TraceError(
                f"{call.path} is no residual unit by itself ({why}), and {around}. Name the module that holds "
                "this sum, or leave it out"
            )
        if around is not None:
            return Around()
        if call.entry.shape == call.exit.shape:
            return Whole()
        if why != NO_SUM:
            raise TraceError(
                f"{call.path} changes the shape of its state from {tuple(call.entry.shape)} to "
                f"{tuple(call.exit.shape)} and cannot be exported, so its skip and its branch cannot be "
                "distinguished; leave it out of the named units"
            )
        raise TraceError(
            f"{call.path} changes the shape of its state from {tuple(call.entry.shape)} to "
            f"{tuple(call.exit.shape)}, and {NO_SUM}, so there is no skip; leave it out of the named units"
        )

    def _units_of(self, recording: Recording, forms: Sequence[tuple[int, Sequence[Form]]]) -> list[list[ModuleUnit]]:
        """The units of every call of a named module, in the order of the trunk."""
        names: Counter[str] = Counter()
        held: list[list[ModuleUnit]] = []
        index = 0
        for order, some in forms:
            call = recording.named[order]
            held.append([])
            for form in some:
                name = call.path if call.time == 0 else f"{call.path}#{call.time + 1}"
                if isinstance(form, Within):
                    name = _inner_name(call.path, self.model.get_submodule(call.path), form)
                    names[name] += 1
                    name = name if names[name] == 1 else f"{name}#{names[name]}"
                held[-1].append(ModuleUnit(self, index, name, order, call, form))
                index += 1
        return held

    def _say(self) -> None:
        whole = [unit for unit in self.units if isinstance(unit.form, Whole)]
        for why in dict.fromkeys(self._why[unit.order] for unit in whole):
            names = [unit.path for unit in whole if self._why[unit.order] == why]
            self._notes.append(
                f"{_some(names)}: not taken apart ({why}); its skip is taken to be the identity, without a tail"
            )
        around = [unit.path for unit in self.units if isinstance(unit.form, Around)]
        if around:
            self._notes.append(
                f"{_some(around)}: its output is added to a state by the code around it, and the unit goes from that "
                "state to the sum"
            )
        for note in dict.fromkeys(note for _, note in self._fixed):
            names = [path for path, some in self._fixed if some == note]
            self._notes.append(f"{_some(names)}: {note}")
        self._notes.append("units were named by the user; the code between them is not taken apart")

    def programs(self) -> list[Program]:
        return [held[0].form.graph.trunk.program for held in self._held if isinstance(held[0].form, Inside)]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The point is computed again: a recording holds the functions of one pass."""
        point, self.point = self.point, None
        try:
            twin = super().__deepcopy__(memo)
        finally:
            self.point = point
        if point is not None:
            twin.at(copy.deepcopy(point.inputs, memo))
        return twin

    # -- points

    def at(self, x: Any) -> ModulePoint:
        inputs = self.inputs(x)
        self._check_types(inputs)
        has_sums = any(isinstance(unit.form, Around) for unit in self.units)
        try:
            recording = self._hooked.recorded(inputs, functions=has_sums)
        except (SkipscopeError, torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as own:  # whatever the user's forward raises
            raise does_not_run(self.model, inputs, own) from own
        if _keys(recording) != self._keys:
            now, then = (", ".join(path for path, _ in some) for some in (_keys(recording), self._keys))
            raise InputError(
                f"at this batch the model called {now}, at the trace {then}; trace it again with this batch"
            )
        sums = self._sums(recording) if has_sums else [None] * len(self.units)
        self.precision.forget()
        self.point = self._point(inputs, recording, sums)
        return self.point

    def _point(self, inputs: Inputs, recording: Recording, sums: Sequence[OuterSum | None]) -> ModulePoint:
        inner = {}
        for unit, *_ in [] if inputs.is_meta(self.model) else self._held:
            if isinstance(unit.form, Inside):
                call = recording.named[unit.order]
                inner[unit.order] = unit.form.inner.at(call, inputs.batch)
        return ModulePoint(self, inputs, recording, sums, self.precision.seen(), inner)

    @property
    def last_point(self) -> ModulePoint:
        assert self.point is not None, "a trunk of named units has a point from its trace on"
        return self.point

    def _sums(self, recording: Recording) -> list[OuterSum | None]:
        """The sums around the modules at another batch, which must be those of the trace."""
        found: list[OuterSum | None] = [None] * len(self.units)
        by_order = sorted(self.units, key=lambda unit: unit.order)
        around = [
            outer_sum(recording, recording.named[unit.order]) if isinstance(unit.form, Around) else None
            for unit in by_order
        ]
        sums = with_tails(recording, [some if isinstance(some, OuterSum) else None for some in around])
        for unit, some in zip(by_order, sums, strict=True):
            tail = [] if some is None else [recording.calls[index].name.strip("_") for index in some.tail]
            if isinstance(unit.form, Around) and (some is None or tail != unit.tail.operations):
                raise InputError(
                    f"at this batch the code around {unit.path} does something else with its output than at the trace; "
                    "trace the model again with this batch"
                )
            found[unit.index] = some
        return found

    def _check_types(self, inputs: Inputs) -> None:
        for then, tensor in zip(self._types, inputs.tensors(), strict=False):
            if then != tensor.dtype and (then.is_floating_point or tensor.is_floating_point()):
                raise InputError(
                    f"the trunk was traced with {then}, got {tensor.dtype}; convert the batch with .to(...), or trace "
                    "again with this batch"
                )

    def at_point(self, point: Point, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Named modules run with the arguments of the trunk's last point: another point is a mistake."""
        assert isinstance(point, ModulePoint), "named units are used with points of their own trunk"
        self._check_last(point)

        def at_last_point(state: Tensor) -> Tensor:
            self._check_last(point)
            return function(state)

        return WhileFresh(at_last_point, point.seen)

    def _check_last(self, point: ModulePoint) -> None:
        if point is not self.point:
            raise TraceError(
                "this point is not the trunk's last one; call trunk.at(x) again and use the point it returns"
            )

    # -- running

    @cached_property
    def in_any_type(self) -> bool:
        """Can the model itself run in float64, with nothing in it that falls back to its own type?"""
        inputs = self.last_point.inputs
        if inputs.is_meta(self.model):
            return False
        with undisturbed(self.model):
            return self.precision.works(inputs.args, inputs.kwargs, torch.float64)

    def replay(self, x: Any) -> Any:
        """The model with each named unit in place of its own calls."""
        point = self.at(x)
        entries: dict[int, Tensor] = {}

        def keep(held: int, state: Tensor) -> None:
            entries[held] = state.clone()  # the module may change it in place

        def replaced(held: int, _: Tensor) -> Tensor:
            unit, state = self._held[held][0], entries.pop(held)
            if not isinstance(unit.form, Within):
                return unit(state)
            args, kwargs = self._arguments(point, unit, state)
            inner = unit.form.inner
            return state_of(inner.trunk.replay(Inputs(args, kwargs, inner.axis, point.batch)), "returns")

        return self._follow(point, keep, replaced)

    def _arguments(self, point: ModulePoint, unit: ModuleUnit, state: Tensor) -> tuple[Any, Any]:
        call = point.recording.named[unit.order]
        args, kwargs = with_state((call.args, call.kwargs), state)
        return args, kwargs

    def _holder(self, unit: ModuleUnit) -> int:
        return next(i for i, held in enumerate(self._held) if unit in held)

    def run_between(self, first: ModuleUnit, last: ModuleUnit, state: Tensor) -> Tensor:
        if first is last:
            return first(state)
        point = self._point_of(state, first)
        begin, end = first.form, last.form
        if isinstance(begin, Within) and isinstance(end, Within) and first.order == last.order:
            return begin.inner.trunk.span(begin.graph.index, end.graph.index)(state)
        here, there = self._holder(first), self._holder(last)

        def enter(held: int, met: Tensor) -> Tensor | None:
            if held == there and isinstance(end, Within):
                raise _Stop(end.inner.until(end.graph)(met, end.inner.trunk.point))
            return state.clone() if held == here and not isinstance(begin, Within) else None

        def leave(held: int, exit: Tensor) -> Tensor | None:
            if held == there:
                raise _Stop(exit)
            if held == here and isinstance(begin, Within):
                return begin.inner.after(begin.graph)(state, begin.inner.trunk.point)
            return None

        try:
            self._follow(point, enter, leave, state.dtype)
        except _Stop as stop:
            return stop.state
        raise TraceError(f"{last.name} did not run")

    def gradients(
        self, point: ModulePoint, scalar: Callable[[Any], Tensor], all_exits: bool = False
    ) -> list[Tensor | None]:
        begun: dict[int, Tensor] = {}
        states: dict[int, Tensor] = {}
        exits: dict[int, Tensor] = {}

        def enter(held: int, state: Tensor) -> Tensor:
            begun[held] = state if state.requires_grad else state.detach().requires_grad_()
            return begun[held].clone()  # the module may change it in place

        def leave(held: int, exit: Tensor) -> Tensor | None:
            first, *_ = self._held[held]
            if not isinstance(first.form, Within):
                states[first.index], exits[first.index] = begun[held], exit
                return None
            values, exit = first.form.inner.states(*self._arguments(point, first, begun[held]))
            for unit in self._held[held]:
                assert isinstance(unit.form, Within)
                states[unit.index], exits[unit.index] = values[unit.form.graph.entry], values[unit.form.graph.exit]
            return exit

        with torch.enable_grad():
            output = self._follow(point, enter, leave)
            left = self.units if all_exits else self.units[-1:]
            ends = [*(states[unit.index] for unit in self.units), *(exits[unit.index] for unit in left)]
            try:
                return list(torch.autograd.grad(scalar(output), ends, allow_unused=True))
            except RuntimeError as error:
                if "modified by an inplace operation" not in str(error):
                    raise
                raise InputError(
                    f"{type(self.model).__name__} has no gradient: its forward changes a state in place that the "
                    "gradient of an earlier operation needs; write x = x + ... instead of x += ..."
                ) from error

    def run_module(self, unit: ModuleUnit, state: Tensor) -> Tensor:
        """One named module as it is, at a state; its other arguments are those of the last point."""
        call = self._point_of(state, unit).recording.named[unit.order]
        args, kwargs = with_state((call.args, call.kwargs), state.clone())
        with self._hooked.quietly():
            return state_of(self.precision.call(unit.path, args, kwargs, state.dtype), "returns")

    def run_piece(self, unit: ModuleUnit, piece: OuterPiece, state: Tensor, at: int, zero: Collection[int]) -> Tensor:
        self._point_of(state, unit)
        with self._hooked.quietly():
            return piece(state, self.precision.call, at, zero)

    def span(self, first: int | str | Unit, last: int | str | Unit) -> ModuleSpan:
        a, b = self[first], self[last]
        assert isinstance(a, ModuleUnit)
        assert isinstance(b, ModuleUnit)
        if a.index > b.index:
            raise TraceError(f"{b.name} runs before {a.name}; name the earlier unit first")
        return ModuleSpan(self, f"{a.name} to {b.name}", a, b)

    def _point_of(self, state: Tensor, unit: ModuleUnit) -> ModulePoint:
        point = self.last_point
        if state.shape[unit.batch_axis] != point.batch:
            raise InputError(
                f"{unit.name} runs with the other inputs of the last point, a batch of {point.batch}, but the "
                f"state has {state.shape[unit.batch_axis]}; call trunk.at(x) with the batch that this state belongs to"
            )
        return point

    def _follow(self, point: ModulePoint, enter: Meeting, leave: Meeting, dtype: torch.dtype | None = None) -> Any:
        ends = [held[0].form.ends() for held in self._held]
        follower = Follower(point.recording, ends, enter, leave)
        dtype = dtype or self.precision.dtype
        inputs = point.inputs if dtype == self.precision.dtype else point.inputs.floating(dtype)
        args, kwargs = follower.begun(inputs.args, inputs.kwargs)
        functions = any(end.order is None for end in ends)
        return self._hooked.run(args, kwargs, follower, functions, dtype)

    def _by_shape(self) -> list[Stage]:
        runs: list[list[ModuleUnit]] = []
        for unit in self.units:
            if runs and runs[-1][-1].exit_shape == unit.exit_shape:
                runs[-1].append(unit)
            else:
                runs.append([unit])
            unit.stage = len(runs)  # counted from 1
        return [Stage(self, i, run) for i, run in enumerate(runs)]


def _keys(recording: Recording) -> list[tuple[str, int]]:
    return [(call.path, call.time) for call in recording.named]


def _end(recording: Recording, order: int, outer: OuterSum | None) -> int:
    return recording.named[order].call if outer is None else outer.exit


def _inner_name(path: str, module: nn.Module, form: Within) -> str:
    """`block.attn`: the module's path and the name in its own trunk, if that is one of its modules or weights."""
    if len(form.inner.units) == 1:
        return path
    name = form.graph.name.partition("#")[0]
    known = {*dict(module.named_modules(remove_duplicate=False)), *dict(module.named_parameters())}
    return f"{path}.{name}" if name in known else path


def _some(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
