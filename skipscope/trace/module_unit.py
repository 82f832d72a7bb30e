"""A unit that the user named by its module, in one of four forms; what lies between such units, and their states.

inside   the module was exported alone, and the unit is in its graph, from the module's input to its output
within   the unit is a part of that graph: the module holds several, or code before or after its one unit
around   the module is the branch, or a part of it, and the code around it adds its output to the state before
whole    neither: the module is called as it is; its skip is taken to be the identity, and its branch is what it adds
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from skipscope.trace.follower import Ends
from skipscope.trace.freshness import WeightsSeen
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.graph_trunk import GraphUnit
from skipscope.trace.inputs import Inputs, tensors_of
from skipscope.trace.inside import Inner
from skipscope.trace.outer_sum import OuterPiece, OuterSum
from skipscope.trace.recording import NamedCall, Place, Recording
from skipscope.trace.trunk import Path, Point, Segment, Unit, UnitRun

if TYPE_CHECKING:
    from skipscope.trace.module_trunk import ModuleTrunk

PATHS = ("branch", "skip", "tail")


class Form(ABC):
    kind, branches = "identity", 1
    unit: ModuleUnit  # set by the unit that takes this form

    @abstractmethod
    def value(self, what: str, state: Tensor) -> Tensor:
        """what: unit, branch, skip or tail. state: the entry; for the tail the sum."""

    def operations(self, what: str) -> list[str]:
        return [type(self.unit.module).__name__] if what == "branch" else []

    def exit_axis(self, what: str) -> int | None:
        """Of a path's value; None where it is as in the entry."""
        return self.unit.exit_axis

    def ends(self) -> Ends:
        return Ends(order=self.unit.order)

    def context(self) -> list[str]:
        extra = tensors_of((self.unit.call.args, self.unit.call.kwargs))[1:]
        return [f"argument {i} of {self.unit.path}" for i, _ in enumerate(extra, 1)]

    def parameter_names(self) -> list[str]:
        return [f"{self.unit.path}.{name}" for name, _ in self.unit.module.named_parameters()]


class Inside(Form):
    def __init__(self, graph: GraphUnit, inner: Inner) -> None:
        """graph: the unit in the graph of the module."""
        self.graph, self.kind, self.branches, self.inner = graph, graph.kind, graph.branches, inner

    def value(self, what: str, state: Tensor) -> Tensor:
        found: Tensor = (self.graph if what == "unit" else getattr(self.graph, what))(state)
        return found

    def operations(self, what: str) -> list[str]:
        found: list[str] = getattr(self.graph, what).operations
        return found

    def exit_axis(self, what: str) -> int | None:
        found: int | None = getattr(self.graph, what).exit_axis
        return found


class Within(Inside):
    """One of the units that a named module holds."""

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the states that it begins and ends with, at the batch of the trace."""
        program = self.inner.trunk.program
        entry, exit_ = (program.shape(node, self.inner.batch) for node in (self.graph.entry, self.graph.exit))
        return entry, exit_

    def axes(self) -> tuple[int, int]:
        axis = self.graph.exit_axis
        return self.graph.batch_axis, self.graph.batch_axis if axis is None else axis

    def context(self) -> list[str]:
        modules = dict(self.unit.module.named_modules())
        path = self.unit.path
        return [f"{path}.{name}" if name in modules else f"{name} of {path}" for name in self.graph.context]

    def parameter_names(self) -> list[str]:
        return [f"{self.unit.path}.{name}" for name in self.graph.parameter_names]


class Whole(Form):
    def value(self, what: str, state: Tensor) -> Tensor:
        if what in ("skip", "tail"):
            return state
        found = self.unit.trunk.run_module(self.unit, state)
        return found - state if what == "branch" else found


class Around(Form):
    """Reads the calls between entry and exit from the recording of the trunk's last point."""

    @property
    def sum(self) -> OuterSum:
        found = self.unit.trunk.last_point.sums[self.unit.index]
        assert found is not None, "a point has the sums that were found at the trace"
        return found

    def value(self, what: str, state: Tensor) -> Tensor:
        sum_ = self.sum
        entry = Place(sum_.sum) if what == "tail" else sum_.entry
        piece = self.unit.trunk.last_point.piece(entry, sum_.exit if what in ("unit", "tail") else sum_.sum)
        zero = {"branch": sum_.skip, "skip": sum_.branch}.get(what, frozenset())
        return self.unit.trunk.run_piece(self.unit, piece, state, sum_.sum, zero)

    def operations(self, what: str) -> list[str]:
        if what == "tail":
            calls = self.unit.trunk.last_point.recording.calls
            return [calls[index].name.strip("_") for index in self.sum.tail]
        return super().operations(what)

    def ends(self) -> Ends:
        return Ends(entry=self.sum.entry, exit=self.sum.exit)

    def context(self) -> list[str]:
        return self._piece().context()

    def parameter_names(self) -> list[str]:
        """Those of the module, and of what else is in the branch."""
        held = {id(tensor) for tensor in self._piece().held()}
        others = [name for name, weight in self.unit.trunk.model.named_parameters() if id(weight) in held]
        return list(dict.fromkeys([*super().parameter_names(), *others]))

    def _piece(self) -> OuterPiece:
        return self.unit.trunk.last_point.piece(self.sum.entry, self.sum.exit)


class ModulePath(Path):
    def __init__(self, unit: ModuleUnit, what: str) -> None:
        self.unit, self.what, self.name = unit, what, f"{what} of {unit.name}"
        self.operations = unit.form.operations(what)

    def value(self, state: Tensor) -> Tensor:
        return self.unit.form.value(self.what, state)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.unit.trunk.at_point(point, self)

    def argument(self, point: Point) -> Tensor:
        return point.sum(self.unit) if self.what == "tail" else point.entry(self.unit)

    @property
    def exit_axis(self) -> int | None:
        return self.unit.form.exit_axis(self.what)

    @property
    def in_any_type(self) -> bool:
        return self.unit.in_any_type


class ModuleUnit(Unit):
    trunk: ModuleTrunk
    stage: int | None = None

    def __init__(self, trunk: ModuleTrunk, index: int, name: str, order: int, call: NamedCall, form: Form) -> None:
        """order: of the call among those of named modules."""
        self.trunk, self.index, self.order, self.call, self.form = trunk, index, order, call, form
        self.path, self.name = call.path, name
        form.unit = self

    def settle(self, entry: tuple[int, ...], exit: tuple[int, ...], axis: int, exit_axis: int) -> None:
        """What can be said once the trunk has a point: the shapes and batch axes of its ends, context and paths."""
        self._axis, self._exit_axis = axis, exit_axis
        self._entry, self._exit = entry, exit
        self.kind, self.branches = self.form.kind, self.form.branches
        self._context, self.parameter_names = self.form.context(), self.form.parameter_names()
        self._branch, self._skip, self._tail = (ModulePath(self, what) for what in PATHS)

    @property
    def branch(self) -> ModulePath:
        return self._branch

    @property
    def skip(self) -> ModulePath:
        return self._skip

    @property
    def tail(self) -> ModulePath:
        return self._tail

    @property
    def context(self) -> list[str]:
        return self._context

    @property
    def parent(self) -> None:
        return None

    @property
    def module(self) -> nn.Module:
        return self.trunk.model.get_submodule(self.path)

    def value(self, state: Tensor) -> Tensor:
        return self.form.value("unit", state)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.trunk.at_point(point, self)

    def argument(self, point: Point) -> Tensor:
        return point.entry(self)

    @property
    def in_any_type(self) -> bool:
        return isinstance(self.form, Inside) or self.trunk.in_any_type

    @property
    def batch_axis(self) -> int:
        return self._axis

    @property
    def exit_axis(self) -> int:
        return self._exit_axis

    @property
    def entry_shape(self) -> tuple[int, ...]:
        return tuple(size for i, size in enumerate(self._entry) if i != self._axis)

    @property
    def exit_shape(self) -> tuple[int, ...]:
        return tuple(size for i, size in enumerate(self._exit) if i != self._exit_axis)


class ModuleSpan(UnitRun):
    trunk: ModuleTrunk
    first: ModuleUnit
    last: ModuleUnit

    def __init__(self, trunk: ModuleTrunk, name: str, first: ModuleUnit, last: ModuleUnit) -> None:
        self.trunk, self.name, self.first, self.last = trunk, name, first, last

    def value(self, state: Tensor) -> Tensor:
        return self.trunk.run_between(self.first, self.last, state)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.trunk.at_point(point, self)

    @property
    def in_any_type(self) -> bool:
        first, last = self.first, self.last
        within = first.order == last.order and isinstance(first.form, Within)
        return first.in_any_type if first is last or within else self.trunk.in_any_type


class ModuleSegment(ModuleSpan, Segment):
    kind = "unit"


class ModulePoint(Point):
    """The states of named units at one batch, from a recording of the model's own forward pass."""

    def __init__(
        self,
        trunk: ModuleTrunk,
        inputs: Inputs,
        recording: Recording,
        sums: Sequence[OuterSum | None],
        seen: WeightsSeen,
        inner: Mapping[int, GraphPoint],
    ) -> None:
        """sums: of each unit, where the code around its module makes one. inner: by the order of their calls, the
        points of modules that were taken apart."""
        self.trunk, self.inputs, self.batch = trunk, inputs, inputs.batch
        self.sums, self.seen, self.inner = list(sums), seen, dict(inner)
        needed: set[int] = set()
        for some in sums:
            if some is not None:
                needed |= OuterPiece(recording, some.entry, some.exit).needed() | {some.sum}
        self.recording = recording.only(needed)
        self._pieces: dict[tuple[Place, int], OuterPiece] = {}

    def piece(self, entry: Place, exit: int) -> OuterPiece:
        if (entry, exit) not in self._pieces:
            self._pieces[entry, exit] = OuterPiece(self.recording, entry, exit)
        return self._pieces[entry, exit]

    @property
    def units(self) -> Sequence[ModuleUnit]:
        return self.trunk.units

    @property
    def output(self) -> Any:
        self.seen.check()
        return self.recording.output

    def entry(self, unit: ModuleUnit) -> Tensor:  # type: ignore[override]
        self.seen.check()
        if isinstance(unit.form, Within):
            return self.inner[unit.order].entry(unit.form.graph)
        outer = self.sums[unit.index]
        return self.recording.named[unit.order].entry if outer is None else self.recording.value(outer.entry)

    def exit(self, unit: ModuleUnit) -> Tensor:  # type: ignore[override]
        self.seen.check()
        if isinstance(unit.form, Within):
            return self.inner[unit.order].exit(unit.form.graph)
        outer = self.sums[unit.index]
        return self.recording.named[unit.order].exit if outer is None else self.recording.value(Place(outer.exit))

    def sum(self, unit: ModuleUnit) -> Tensor:  # type: ignore[override]
        self.seen.check()
        outer = self.sums[unit.index]
        if outer is not None:
            return self.recording.value(Place(outer.sum))
        if isinstance(unit.form, Within):
            return self.inner[unit.order].sum(unit.form.graph)
        entry = self.entry(unit)
        with torch.no_grad():
            return unit.skip.bound(self)(entry) + unit.branch.bound(self)(entry)

    def take(self, samples: Sequence[int]) -> None:
        return None

    def gradients(self, scalar: Callable[[Any], Tensor], *, exits: bool = False) -> list[Tensor | None]:
        self.seen.check()
        return self.trunk.gradients(self, scalar, exits)

    def first_not_finite(self) -> str:
        model = self.trunk.model
        weights = ((f"the weight {name}", weight) for name, weight in model.named_parameters())
        states = ((f"the {what} of {u.name}", state(u)) for u in self.units for what, state in self._states())
        found = (where for some in (weights, states) for where, value in some if not torch.isfinite(value).all())
        return next(found, "")

    def _states(self) -> list[tuple[str, Callable[[Unit], Tensor]]]:
        return [("entry", self.entry), ("exit", self.exit)]  # type: ignore[list-item]
