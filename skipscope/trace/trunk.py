"""The trunk of a model as its users see it: units, stages, segments, states.

Two kinds of trunk fill this in: `graph_trunk` from an exported graph, and `module_trunk` from modules that
the user named.
"""

from __future__ import annotations

import copy
import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from skipscope.errors import InputError, TraceError
from skipscope.trace import table
from skipscope.trace.inputs import Inputs
from skipscope.trace.program import Program
from skipscope.trace.region import LeftOut
from skipscope.trace.running_statistics import never_seen

if TYPE_CHECKING:
    from skipscope.linear import Operator
    from skipscope.trace.contract import Contract
    from skipscope.trace.tokens.path import TokenPath

Part = Literal["unit", "branch", "skip"]  # of a unit; "unit" is all of it


class Function(ABC):
    """A function of one state: a span of the trunk or a path through a unit."""

    name: str

    @property
    def in_any_type(self) -> bool:
        """Can it be evaluated in float64 with a float32 model?"""
        return True

    @property
    def exit_axis(self) -> int | None:
        """The axis of the value that runs over samples, where it is known."""
        return None

    def __call__(self, state: Tensor | Point) -> Tensor:
        """The value at a state, with the context, if any, of the trunk's last point; or at a point, with its own."""
        if isinstance(state, Point):
            return self.bound(state)(self.argument(state))
        if not isinstance(state, Tensor):
            raise InputError(
                f"{self.name}: expected a state, such as point.entry(unit), or a point, got {type(state).__name__}"
            )
        return self.value(state)

    @abstractmethod
    def value(self, state: Tensor) -> Tensor:
        """At a state; a context, if any, is that of the trunk's last point."""

    @abstractmethod
    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        """The same function with the context of a point."""

    @abstractmethod
    def argument(self, point: Point) -> Tensor:
        """The state that the function is called with at a point."""

    def at_tokens(self, point: Point, entries: Sequence[int], exits: Sequence[int]) -> TokenPath | str:
        """The same function from the states of some tokens to those of some, with all others as they are at a point;
        or why that takes the whole sequence."""
        return "it was traced as a module, and what is inside is not known"


class Span(Function):
    """Anything that maps one state of the trunk to another: a unit, a stage, a segment, a run of units."""

    trunk: Trunk

    @property
    @abstractmethod
    def entry_shape(self) -> tuple[int, ...]:
        """The shape of one sample's entry state."""

    @property
    @abstractmethod
    def exit_shape(self) -> tuple[int, ...]:
        """The shape of one sample's exit state."""

    @property
    @abstractmethod
    def batch_axis(self) -> int:
        """The axis of the entry state that runs over samples."""

    def jacobian(
        self,
        x: Any,
        *,
        of: Part = "unit",
        tail: bool = False,
        tokens: tuple[Any, Any] | None = None,
        channels: tuple[Any, Any] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Operator:
        """The derivative of the exit with respect to the entry at `x`, a batch of model inputs or a point: one matrix
        per sample, an operator of shape (B, m, n).

        of: "unit" the whole span; for a unit also "branch" or "skip" alone.
        tail: with a branch or skip, apply the tail's derivative at the sum to it: diag(sigma') dF/dh.
        tokens, channels: (entry, exit) positions that rows and columns are restricted to; None keeps all. Between
        chosen tokens only their own path is differentiated where that is exact; `operator.token_route` says which way
        was taken.
        dtype: the floating type to evaluate in; the model's own by default.
        """
        # The one import from the next room: operators are made of spans, and a user asks the span for its operator.
        from skipscope.linear import jacobian

        return jacobian(self, x, of=of, tail=tail, tokens=tokens, channels=channels, dtype=dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.entry_shape} -> {self.exit_shape}>"


class Path(Function):
    """One way through a unit: its branch, its skip or its tail."""

    operations: list[str]  # along the path, by the names that readers know

    def __bool__(self) -> bool:
        return bool(self.operations)

    def __repr__(self) -> str:
        return f"<{self.name}: {' '.join(self.operations) or 'identity'}>"


class Unit(Span):
    """A residual unit: exit = tail(skip(entry) + branch(entry))."""

    index: int
    kind: str  # of the skip: identity, scaled, gated, streams, pad, pool, projection, layout
    stage: int | None  # its number, counted from 1 as in names and tables: trunk.stages[unit.stage - 1]
    branches: int  # how many terms the skip is added to: two where attention and feed-forward are parallel
    parameter_names: list[str]
    without_skip = False  # a module that the user named, and in which no sum joins its input with a branch

    @property
    @abstractmethod
    def branch(self) -> Path: ...

    @property
    @abstractmethod
    def skip(self) -> Path: ...

    @property
    @abstractmethod
    def tail(self) -> Path: ...

    @property
    @abstractmethod
    def context(self) -> list[str]:
        """What it reads in addition to its entry: names of inputs, or of the modules that made it."""

    @property
    @abstractmethod
    def parent(self) -> Unit | None:
        """The unit whose branch this one lies in."""

    @property
    def side_outputs(self) -> list[str]:
        """Values inside that are also used elsewhere, by the modules that made them: attention maps, router logits."""
        return []

    def mix(self, x: Any) -> Tensor:
        """What the entry is multiplied by on the skip, at a batch of model inputs or a point: the gate of a gated unit,
        the matrix that mixes the streams (..., streams, streams), the factor of a scaled skip."""
        raise TraceError(f"{self.name} was traced as a module, and what its skip multiplies by is not known")

    @property
    def parameters(self) -> int:
        """The number of weights that the unit uses, each counted once."""
        return sum(self.trunk.model.get_parameter(name).numel() for name in self.parameter_names)

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "name": self.name,
            "skip": self.kind,
            "branches": self.branches,
            "tail": self.tail.operations,
            "context": self.context,
            "side_outputs": self.side_outputs,
            "stage": self.stage,
            "inside": self.parent.name if self.parent else None,
            "entry_shape": list(self.entry_shape),
            "exit_shape": list(self.exit_shape),
            "batch_axis": self.batch_axis,
            "parameters": self.parameters,
        }


class Segment(Span):
    """A part of the partition of the model: `stem`, `unit`, `transition` or `head`."""

    kind: str


class UnitRun(Span):
    """From the entry of one unit to the exit of the same or a later one."""

    first: Unit
    last: Unit

    def argument(self, point: Point) -> Tensor:
        return self.first.argument(point)

    @property
    def entry_shape(self) -> tuple[int, ...]:
        return self.first.entry_shape

    @property
    def exit_shape(self) -> tuple[int, ...]:
        return self.last.exit_shape

    @property
    def batch_axis(self) -> int:
        return self.first.batch_axis

    @property
    def exit_axis(self) -> int | None:
        return self.last.exit_axis


class Stage(UnitRun):
    """A run of units whose exit states have one shape; the first of them may change the shape."""

    def __init__(self, trunk: Trunk, index: int, units: Sequence[Unit]) -> None:
        """index: in `trunk.stages`, from 0. Names, tables and datasets have the number, from 1."""
        self.trunk, self.index, self.units = trunk, index, list(units)
        self.first, self.last = self.units[0], self.units[-1]
        self.number = index + 1
        self.name = f"stage {self.number}"

    @property
    def span(self) -> Span:
        return self.trunk.span(self.first.index, self.last.index)

    def value(self, state: Tensor) -> Tensor:
        return self.span.value(state)

    def bound(self, point: Point) -> Callable[[Tensor], Tensor]:
        return self.span.bound(point)

    def at_tokens(self, point: Point, entries: Sequence[int], exits: Sequence[int]) -> TokenPath | str:
        return self.span.at_tokens(point, entries, exits)

    @property
    def in_any_type(self) -> bool:
        return self.span.in_any_type

    def __repr__(self) -> str:
        return f"<Stage {self.number}: {len(self.units)} units, state {self.exit_shape}>"


class Point(ABC):
    """The states and contexts of a trunk at one batch."""

    batch: int

    @property
    @abstractmethod
    def units(self) -> Sequence[Unit]: ...

    @property
    @abstractmethod
    def output(self) -> Any:
        """The model's own, in its own structure."""

    @cached_property
    def remembered(self) -> dict[Any, Any]:
        """What was found out of functions at this point; gone with it."""
        return {}

    @abstractmethod
    def entry(self, unit: Unit) -> Tensor: ...

    @abstractmethod
    def sum(self, unit: Unit) -> Tensor:
        """The sum of skip and branch, before the tail."""

    @abstractmethod
    def exit(self, unit: Unit) -> Tensor: ...

    @abstractmethod
    def take(self, samples: Sequence[int]) -> Point | None:
        """The same point for some of the samples; None where the model can only run with all of them."""

    @abstractmethod
    def gradients(self, scalar: Callable[[Any], Tensor], *, exits: bool = False) -> list[Tensor | None]:
        """The gradient of a function of the model's output at every state; None where it does not depend on one.

        exits: at every unit's entry, then at every unit's exit, in place of the last exit alone."""

    @abstractmethod
    def first_not_finite(self) -> str:
        """Where the first NaN or infinite value arises; empty if there is none."""

    @property
    def states(self) -> list[Tensor]:
        """Every unit's entry, then the last exit."""
        if not self.units:
            return []
        return [*(self.entry(unit) for unit in self.units), self.exit(self.units[-1])]


class Trunk(ABC):
    """What `ss.trace` returns: `trunk["layer3.4"]`, `trunk[5]`, `trunk.units`, `trunk.segments`, `trunk.stages`."""

    model: nn.Module  # whose weights are read: the user's own, or its float32 copy where that has to be called
    units: Sequence[Unit]
    stages: Sequence[Stage]
    segments: Sequence[Segment]
    left_out: Sequence[LeftOut]
    point: Point | None = None  # the last one
    replay_error: float | None = None

    def __init__(self, axis: int, notes: Sequence[str], dtype: torch.dtype | None) -> None:
        self._axis, self._dtype = axis, dtype
        self._notes = list(notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results must know; of the weights as they are now, which training may have changed."""
        return (*never_seen(self.model), *self._notes)

    @abstractmethod
    def at(self, x: Any) -> Point:
        """The states and contexts at a batch of model inputs; also the context of later calls of units."""

    @abstractmethod
    def replay(self, x: Any) -> Any:
        """The model's own output, computed through the trunk's pieces."""

    @abstractmethod
    def span(self, first: int | str | Unit, last: int | str | Unit) -> Span:
        """From the entry of one unit to the exit of another: indices, names or units."""

    @contextmanager
    def runnable(self, x: Any) -> Iterator[nn.Module]:
        """The model, which inside can be called with `self.inputs(x)`: in the trunk's type, where the batch is."""
        yield self.model

    def contract(self, x: Any = None) -> Contract:
        """For each unit which module's output is the branch, with which factor and norm, and whether the module adds
        the residual itself; asserted with forward hooks on the model: exit = tail(skip + branch).

        x: a batch of model inputs, or a point; the last one where it is left out.
        """
        from skipscope.trace.contract import contract_of

        return contract_of(self, x)

    @abstractmethod
    def programs(self) -> Sequence[Program]:
        """The graphs that its units are pieces of."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same trunk of a copy of the model. Graphs are shared: nothing changes them after the trace."""
        for program in self.programs():
            memo.update({id(part): part for part in program.fixed_parts()})
        twin = memo[id(self)] = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(twin, name, copy.deepcopy(value, memo))
        return twin

    def inputs(self, x: Any) -> Inputs:
        """The batch as the traced model takes it."""
        inputs = Inputs.of(self.model, x, self._axis)
        if self._dtype is not None:
            inputs = inputs.floating(self._dtype)
        inputs.check_device(self.model)
        inputs.check_values(self.model)
        return inputs

    def __getitem__(self, key: int | str | Unit) -> Unit:
        if isinstance(key, Unit):
            if not any(key is unit for unit in self.units):
                raise TraceError(f"the unit {key.name} is not of this trunk; use trunk[{key.name!r}]")
            return key
        if isinstance(key, int):
            if not -len(self.units) <= key < len(self.units):
                raise TraceError(f"there is no unit {key}: the trunk has {len(self.units)} units")
            return self.units[key]
        if not isinstance(key, str):
            raise TraceError(f"expected the index or the name of a unit, got {key!r}; trunk.units is the list of all")
        names = [unit.name for unit in self.units]
        if key not in names:
            near = difflib.get_close_matches(key, names, 3) or names[:3]
            raise TraceError(f"there is no unit {key!r}; some that there are: {', '.join(near) or 'none'}")
        return self.units[names.index(key)]

    def __len__(self) -> int:
        return len(self.units)

    def to_dict(self) -> dict[str, Any]:
        return table.as_dict(self)

    def __str__(self) -> str:
        return table.as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table.as_html(self)
