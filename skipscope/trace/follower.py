"""Another pass of a recorded model, which meets the states of units on its way and may change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import TraceError
from skipscope.trace.inputs import tensors_of
from skipscope.trace.recording import Place, Recording, Watch, exchanged, state_of, with_state

Meeting = Callable[[int, Tensor], Tensor | None]  # the index of a unit and its state: a new state, or None


@dataclass(frozen=True)
class Ends:
    """Where the entry and the exit of a unit are in a pass."""

    order: int | None = None  # which call of a named module it is, where the unit is that module
    entry: Place | None = None  # elsewhere, in the code around the module
    exit: int | None = None


class Follower(Watch):
    """Runs the way that a recording took, and meets the units' states on it."""

    def __init__(
        self, recording: Recording, ends: Sequence[Ends], enter: Meeting | None, leave: Meeting | None
    ) -> None:
        super().__init__()
        self.recording, self.ends = recording, list(ends)
        self._enter = enter or (lambda unit, state: None)
        self._leave = leave or (lambda unit, state: None)
        self._gone: dict[int, Tensor] = {}  # what was replaced: a later use of it would go around the new state

    def begun(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The inputs, with the states that are there already."""
        leaves = tensors_of((args, kwargs))
        for unit, end in enumerate(self.ends):
            if end.entry is not None and end.entry.call < 0:
                old = leaves[-1 - end.entry.call]
                if (new := self._enter(unit, old)) is not None:
                    args, kwargs = exchanged((args, kwargs), old, new)
        return args, kwargs

    def called(self, index: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        name, made = getattr(function, "__name__", str(function)), self.recording.calls.get(index)
        if made is not None and made.name != name:
            raise TraceError(
                f"at this state the model takes another way than at its batch ({name} for {made.name}), so there is no "
                "one function to measure"
            )
        self._check_current((args, kwargs), name)
        return self._met(index, function(*args, **kwargs))

    def entered(self, path: str, args: Any, kwargs: Any) -> Any:
        self._check_current((args, kwargs), path)
        for unit, end in enumerate(self.ends):
            if end.order == self.order:
                state = self._enter(unit, state_of((args, kwargs), "gets"))
                return None if state is None else with_state((args, kwargs), state)
        if not torch.is_grad_enabled():
            return None
        # `x += layer(x)` changes in place what the layer's gradient needs.
        return with_state((args, kwargs), state_of((args, kwargs), "gets").clone())

    def left(self, index: int, path: str, args: Any, kwargs: Any, output: Any) -> Any:
        for unit, end in enumerate(self.ends):
            if end.order == self.order - 1:
                state = self._leave(unit, state_of(output, "returns"))
                output = output if state is None else with_state(output, state)
        return self._met(index, output)

    def _met(self, index: int, result: Any) -> Any:
        """The result of a call, with the states that end or begin there replaced."""
        for unit, end in enumerate(self.ends):
            if end.exit == index:
                result = self._exchange(result, 0, self._leave, unit)
        for unit, end in enumerate(self.ends):
            if end.entry is not None and end.entry.call == index:
                result = self._exchange(result, end.entry.leaf, self._enter, unit)
        return result

    def _exchange(self, result: Any, leaf: int, meet: Meeting, unit: int) -> Any:
        old = tensors_of(result)[leaf]
        self.depth += 1
        new = meet(unit, old)
        self.depth -= 1
        if new is None:
            return result
        self._gone[id(old)] = old
        return exchanged(result, old, new)

    def _check_current(self, arguments: Any, name: str) -> None:
        if self._gone and any(id(tensor) in self._gone for tensor in tensors_of(arguments)):
            raise TraceError(
                f"{name} reads a state that was written in place or is kept under another name, so that it cannot be "
                "replaced; name the module around it as the unit instead"
            )
