"""A trunk on modules that the user named, for a model that cannot be exported.

The model itself runs, with hooks on the named modules. A named module is exported alone where that works, and then has
branch, skip and tail like any other unit. Where there is no unit inside it, the code around it is looked at: a sum of
its output with the state before it makes a unit around it (`outer_sum`). Where there is none, the module is called as
it is, its skip is taken to be the identity (the notes say so), and its branch is what it adds. The rest of the code
between the named modules is not taken apart: a span runs the model from the start, puts the state in where it begins
and stops where it ends; in float64 on converted weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from skipscope.errors import InputError, TraceError
from skipscope.trace.batch_axes import ModuleAxes
from skipscope.trace.follower import Follower, Meeting
from skipscope.trace.freshness import while_fresh
from skipscope.trace.inputs import Inputs
from skipscope.trace.inside import NO_SUM, Exports
from skipscope.trace.module_unit import Around, Form, Inside, ModulePoint, ModuleSegment, ModuleSpan, ModuleUnit, Whole
from skipscope.trace.outer_sum import OuterPiece, OuterSum, outer_sum, with_tails
from skipscope.trace.program import Program
from skipscope.trace.recording import HookedModel, Recording, state_of, with_state
from skipscope.trace.trunk import Point, Stage, Trunk
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
        self.units = [ModuleUnit(self, k, i, recording.named[i], forms[i]) for k, i in enumerate(order)]
        for unit in self.units:
            unit.without_skip = isinstance(unit.form, Whole) and self._why[unit.order] == NO_SUM
        self.point = ModulePoint(self, inputs, recording, [sums[i] for i in order], self.precision.seen())
        for unit in self.units:
            unit.settle(self.point.entry(unit), self.point.exit(unit), axes.of_unit(unit.order, sums[unit.order]))
        self.stages = self._by_shape()
        self.segments = [ModuleSegment(self, unit.name, unit, unit) for unit in self.units]
        self._say()

    # -- what the named modules are

    def _forms(
        self, inputs: Inputs, recording: Recording, axes: ModuleAxes
    ) -> tuple[list[Form], list[OuterSum | None]]:
        """Of every call of a named module: the form of its unit, and the sum around it."""
        exports, sums = Exports(), []
        forms: list[Form] = []
        self._why: list[str] = []
        for order, call in enumerate(recording.named):
            axis = axes.of_module(order)
            module = self.model.get_submodule(call.path)
            inside = exports.unit_inside(module, Inputs(call.args, call.kwargs, axis, inputs.batch))
            around = outer_sum(recording, call) if isinstance(inside, str) else None
            if isinstance(around, str):
                raise TraceError(
                    f"{call.path} is no residual unit by itself ({inside}), and {around}. Name the module that holds "
                    "this sum, or leave it out"
                )
            sums.append(around)
            forms.append(Inside(inside) if not isinstance(inside, str) else Around() if around else Whole())
            self._why.append(inside if isinstance(inside, str) else "")
            if isinstance(forms[-1], Whole) and call.entry.shape != call.exit.shape:
                if inside != NO_SUM:
                    raise TraceError(
                        f"{call.path} changes the shape of its state from {tuple(call.entry.shape)} to "
                        f"{tuple(call.exit.shape)} and cannot be exported, so its skip and its branch cannot be "
                        "distinguished; leave it out of the named units"
                    )
                raise TraceError(
                    f"{call.path} changes the shape of its state from {tuple(call.entry.shape)} to "
                    f"{tuple(call.exit.shape)}, and {NO_SUM}, so there is no skip; leave it out of the named units"
                )
        return forms, with_tails(recording, sums)

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
        self._notes.append("units were named by the user; the code between them is not taken apart")

    def programs(self) -> list[Program]:
        return [unit.form.graph.trunk.program for unit in self.units if isinstance(unit.form, Inside)]

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
        recording = self._hooked.recorded(inputs, functions=has_sums)
        if _keys(recording) != self._keys:
            now, then = (", ".join(path for path, _ in some) for some in (_keys(recording), self._keys))
            raise InputError(
                f"at this batch the model called {now}, at the trace {then}; trace it again with this batch"
            )
        sums = self._sums(recording) if has_sums else [None] * len(self.units)
        self.precision.forget()
        self.point = ModulePoint(self, inputs, recording, sums, self.precision.seen())
        for unit in self.units:
            if isinstance(unit.form, Inside):
                call = recording.named[unit.order]
                unit.form.graph.trunk.at(Inputs(call.args, call.kwargs, unit.batch_axis, inputs.batch))
        return self.point

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

        return while_fresh(at_last_point, point.seen)

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

        def keep(unit: int, state: Tensor) -> None:
            entries[unit] = state.clone()  # the module may change it in place

        return self._follow(point, keep, lambda unit, state: self.units[unit](entries.pop(unit)))

    def run_between(self, first: ModuleUnit, last: ModuleUnit, state: Tensor) -> Tensor:
        if first is last:
            return first(state)
        point = self._point_of(state, first)

        def enter(unit: int, _: Tensor) -> Tensor | None:
            return state.clone() if unit == first.index else None

        def leave(unit: int, exit: Tensor) -> None:
            if unit == last.index:
                raise _Stop(exit)

        try:
            self._follow(point, enter, leave, state.dtype)
        except _Stop as stop:
            return stop.state
        raise TraceError(f"{last.name} did not run")

    def gradients(self, point: ModulePoint, scalar: Callable[[Any], Tensor]) -> list[Tensor | None]:
        states: dict[int, Tensor] = {}
        exits: dict[int, Tensor] = {}

        def enter(unit: int, state: Tensor) -> Tensor:
            states[unit] = state if state.requires_grad else state.detach().requires_grad_()
            return states[unit].clone()  # the module may change it in place

        with torch.enable_grad():
            output = self._follow(point, enter, lambda unit, state: exits.update({unit: state}))
            ends = [*(states[unit.index] for unit in self.units), exits[self.units[-1].index]]
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

    def span(self, first: int | str, last: int | str) -> ModuleSpan:
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
        ends = [unit.form.ends() for unit in self.units]
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


def _some(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
