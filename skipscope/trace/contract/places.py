"""The words of a contract: places where a hook finds a tensor, and what is done to it on the way to a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import fx, nn

Side = Literal["input", "output"]
Kind = Literal["norm", "factor", "module", "operation"]
PRODUCTS = ("mul", "div")  # operations that multiply


@dataclass(frozen=True)
class HookPlace:
    """Where a forward hook finds a tensor.

    index: the way to it inside the output, or inside (args, kwargs) of the call; empty for an output that is a tensor.
    call: 1 for the first call of the module in one pass.
    overwritten: later code writes into the same memory, so that a hook has to clone what it wants to keep.
    shape: that of the state, with -1 for the batch, where the module has the same numbers in another one.
    """

    module: str
    side: Side
    index: tuple[int | str, ...] = ()
    call: int = 1
    overwritten: bool = False
    shape: tuple[int, ...] | None = None

    @property
    def reshaped(self) -> str:
        """The call that gives it the state's shape; empty where it has that."""
        return "" if self.shape is None else f".reshape({', '.join(map(str, self.shape))})"

    def __str__(self) -> str:
        index = self.index
        if self.side == "input":  # the first positional argument is what everybody calls the input
            index = index[2:] if index[:2] == (0, 0) else index[1:]
        inside = "".join(f"[{part!r}]" for part in index)
        which = "" if self.call == 1 else f" (call {self.call})"
        return f"{self.module} {self.side}{inside}{self.reshaped}{which}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "module": self.module,
            "side": self.side,
            "index": list(self.index),
            "call": self.call,
            "overwritten": self.overwritten,
            "shape": None if self.shape is None else list(self.shape),
        }


@dataclass(frozen=True)
class HookStep:
    """One thing that happens to a module's output before it is added.

    what: the path of the norm or other module, the name of the weight that is multiplied by, or the operation.
    value: a factor that is a number. before, after: the nodes of the graph around the step.
    """

    kind: Kind
    what: str
    value: float | None = None
    module: str | None = None  # the module that does it; None where the block's own code does
    before: fx.Node | None = field(default=None, repr=False)
    after: fx.Node | None = field(default=None, repr=False)

    def applied_to(self, text: str) -> str:
        """In words: what a value, written as `text`, becomes."""
        if self.kind == "factor":
            return f"{text} * {self.what}"
        return f"{self.what}({text})"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "what": self.what, "value": self.value, "module": self.module}


@dataclass(frozen=True)
class Summand:
    """One term of a unit's sum: coefficient * steps(tensor at place).

    place: of the tensor that it starts from: a module's output, or the entry. exact: the place of a tensor that is the
    term already, all steps done, where there is one. naive_error: the relative error of whoever takes the output of
    `naive` for the term; None where that is of another shape.
    """

    place: HookPlace
    steps: tuple[HookStep, ...] = ()
    coefficient: float = 1.0
    exact: HookPlace | None = None
    naive: str | None = None
    naive_error: float | None = None

    @property
    def norm(self) -> str | None:
        """The norm that follows the module before the sum."""
        return next((step.what for step in self.steps if step.kind == "norm"), None)

    @property
    def factor(self) -> float | str | list[float | str] | None:
        """What the term is multiplied by: a number, or the name of a weight (LayerScale); several in a list. None where
        the block's own code computes it (the tanh of a gate)."""
        if any(step.kind == "operation" and step.what.rstrip("_") in PRODUCTS for step in self.steps):
            return None
        number = self.coefficient
        weights: list[float | str] = []
        for step in self.steps:
            if step.kind == "factor" and step.value is not None:
                number *= step.value
            elif step.kind == "factor":
                weights.append(step.what)
        if not weights:
            return number
        found = weights if number == 1 else [number, *weights]
        return found[0] if len(found) == 1 else found

    def __str__(self) -> str:
        text = str(self.place)
        for step in self.steps:
            text = step.applied_to(text)
        return text if self.coefficient == 1 else f"{text} * {self.coefficient:g}"

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.place.to_dict(),
            "factor": self.factor,
            "norm": self.norm,
            "steps": [step.to_dict() for step in self.steps],
            "coefficient": self.coefficient,
            "exact": None if self.exact is None else self.exact.to_dict(),
            "naive": self.naive,
            "naive_error": self.naive_error,
            "expression": str(self),
        }


@dataclass(frozen=True)
class UnitContract:
    """What one unit adds to what: exit = tail(skip + branches).

    module: the module that the unit is named after; adds_residual: it returns the sum, not the branch.
    problem: empty where the equation holds for tensors that real hooks gave, to `error` (relative); otherwise why there
    is no map, in words, and nothing else is to be relied on.
    """

    index: int
    unit: str
    module: str | None
    adds_residual: bool
    entry: HookPlace | None = None
    skip: Summand | None = None
    branches: tuple[Summand, ...] = ()
    tail: tuple[HookStep, ...] = ()
    exit: HookPlace | None = None
    error: float | None = None
    problem: str = ""

    @property
    def holds(self) -> bool:
        return not self.problem

    @property
    def parallel(self) -> bool:
        """Several branches (attention and feed-forward) read one entry and are added at once."""
        return len(self.branches) > 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "unit": self.unit,
            "holds": self.holds,
            "problem": self.problem,
            "error": self.error,
            "module": self.module,
            "adds_residual": self.adds_residual,
            "parallel": self.parallel,
            "entry": None if self.entry is None else self.entry.to_dict(),
            "skip": None if self.skip is None else self.skip.to_dict(),
            "branches": [branch.to_dict() for branch in self.branches],
            "tail": [step.to_dict() for step in self.tail],
            "exit": None if self.exit is None else self.exit.to_dict(),
        }


@dataclass(frozen=True)
class Contract:
    """What `trunk.contract()` returns: for each unit which module's output is the branch, and what is done to it."""

    model: str
    units: Sequence[UnitContract]
    network: nn.Module | None = field(default=None, repr=False, compare=False)  # the model itself

    @property
    def holds(self) -> bool:
        """For every unit."""
        return all(unit.holds for unit in self.units)

    def __getitem__(self, key: int | str) -> UnitContract:
        """By the unit's name or index."""
        from skipscope.errors import InputError

        found = [unit for unit in self.units if key in (unit.unit, unit.index)]
        if not found:
            names = ", ".join(unit.unit for unit in self.units[:3]) or "none"
            raise InputError(f"there is no unit {key!r} in the contract; some that there are: {names}")
        return found[0]

    def __len__(self) -> int:
        return len(self.units)

    def export(self, library: str = "json") -> dict[str, Any]:
        """The map that users of a library apply: "nnsight", "transformerlens", or "json" for plain forward hooks."""
        from skipscope.trace.contract.exports import exported

        return exported(self, library)

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model, "holds": self.holds, "units": [unit.to_dict() for unit in self.units]}

    def __str__(self) -> str:
        from skipscope.trace.contract.words import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from skipscope.trace.contract.words import as_html

        return as_html(self)
