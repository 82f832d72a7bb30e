"""The batch axes of named units' states."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from skipscope.errors import TraceError
from skipscope.trace.batch_axes import axis_by_doubling, axis_by_rolling
from skipscope.trace.inputs import Inputs
from skipscope.trace.outer_sum import OuterSum
from skipscope.trace.recording import Place, Recording


class ModuleAxes:
    """The batch axes of states, by what becomes of them at a batch of twice the size, or in another order."""

    def __init__(self, record: Callable[[Inputs], Recording], inputs: Inputs, recording: Recording) -> None:
        self._record, self.inputs, self.recording = record, inputs, recording
        self._doubled = self._other(inputs.doubled())
        self._rolled: Recording | None = None

    def of_module(self, order: int) -> int:
        path = self.recording.named[order].path
        self._of(lambda recording: recording.named[order].exit, path)
        return self._of(lambda recording: recording.named[order].entry, path)

    def of_unit(self, order: int, outer: OuterSum | None) -> tuple[int, int]:
        if outer is None:
            ends = (lambda some: some.named[order].entry, lambda some: some.named[order].exit)
        else:
            ends = (lambda some: some.value(outer.entry), lambda some: some.value(Place(outer.exit)))
        entry, exit_ = (self._of(end, self.recording.named[order].path) for end in ends)
        return entry, exit_

    def _of(self, state: Callable[[Recording], Tensor], path: str) -> int:
        value, batch = state(self.recording), self.inputs.batch
        if self._doubled is not None:
            axis = axis_by_doubling(value, state(self._doubled), batch)
            if axis is not None:
                return axis
        self._rolled = self._rolled or self._other(self.inputs.rolled())
        if self._rolled is not None:
            axis = axis_by_rolling(value, state(self._rolled), batch, self.inputs.axis)
            if axis is not None:
                return axis
        raise TraceError(
            f"the states of {path}, of shape {tuple(value.shape)}, have no axis of the batch's size {batch} whose "
            "entries move with the samples; name other modules"
        )

    def _other(self, inputs: Inputs) -> Recording | None:
        """The pass at another batch, if the model runs there and takes the same way."""
        try:
            found = self._record(inputs)
        except Exception:  # whatever the user's forward says to a batch that the user did not pass
            return None
        return found if _way(found) == _way(self.recording) else None


def _way(recording: Recording) -> list[tuple[int, str]]:
    return [(index, made.name) for index, made in recording.calls.items()]
