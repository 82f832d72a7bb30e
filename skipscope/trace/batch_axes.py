"""Which axis of a state runs over the samples, where no symbol for the batch says so.

Sizes alone do not decide it: in a batch of as many samples as a sequence has tokens, two axes have that size. When the
samples of a batch change places, those of a state change places in the same way, along its batch axis and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor, fx

from skipscope.errors import TraceError
from skipscope.numerics import measuring
from skipscope.trace.inputs import Inputs
from skipscope.trace.outer_sum import OuterSum
from skipscope.trace.program import Program, Values
from skipscope.trace.recording import Place, Recording

SAME_WITHIN = 1e-3  # of the largest entry; a sample's values depend a little on its place in a batch


def axis_by_rolling(value: Tensor, rolled: Tensor, batch: int, first: int) -> int | None:
    """value, rolled: at a batch and at the same batch with its samples moved on by one. first: the axis to prefer where
    several fit, as all do that have one place only."""
    axes = [axis for axis, size in enumerate(value.shape) if size == batch]
    if not value.is_meta:  # where there are no values, nothing will be measured either
        axes = [axis for axis in axes if value.shape == rolled.shape and _equal(value.roll(1, axis), rolled)]
    return first if first in axes else next(iter(axes), None)


def axis_by_doubling(value: Tensor, doubled: Tensor, batch: int) -> int | None:
    """doubled: at a batch of twice the size."""
    if value.dim() != doubled.dim():
        return None
    axes = [axis for axis, (a, b) in enumerate(zip(value.shape, doubled.shape, strict=True)) if a != b]
    return axes[0] if len(axes) == 1 and (value.shape[axes[0]], doubled.shape[axes[0]]) == (batch, 2 * batch) else None


def axes_of_nodes(program: Program, inputs: Inputs) -> dict[fx.Node, int | None]:
    """The batch axis of every tensor of a graph that holds for one batch size, found by running it twice.

    Where the second run meets a size that the values of the first decided (how many tokens an expert gets), the only
    axis of the batch's size is taken.
    """
    turned = inputs.rolled()
    # Not by the program's own `bind`: one that was recorded asks the model first, and here that is not known yet.
    before, after = (Program.bind(program, some.args, some.kwargs) for some in (inputs, turned))
    found = {node: _axis(before, after, node, inputs) for node in program.inputs}
    last = {argument: node for node in program.nodes for argument in node.all_input_nodes}
    ends: dict[fx.Node, list[fx.Node]] = {}
    for argument, node in last.items():
        ends.setdefault(node, []).append(argument)
    with torch.no_grad(), measuring():
        for node in program.nodes:
            program.run([node], before, inputs.batch)
            if all(argument in after for argument in node.all_input_nodes if argument in before):
                with suppress(RuntimeError, IndexError):
                    program.run([node], after, inputs.batch)
            found[node] = _axis(before, after, node, inputs)
            for dead in ends.get(node, ()):
                before.pop(dead, None), after.pop(dead, None)
    return found


def _axis(before: Values, after: Values, node: fx.Node, inputs: Inputs) -> int | None:
    value, rolled = before.get(node), after.get(node)
    if not isinstance(value, Tensor):
        return None
    if not isinstance(rolled, Tensor):
        axes = [axis for axis, size in enumerate(value.shape) if size == inputs.batch]
        return axes[0] if len(axes) == 1 else None
    return axis_by_rolling(value, rolled, inputs.batch, inputs.axis)


def _equal(a: Tensor, b: Tensor) -> bool:
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        return False
    a, b = a[finite], b[finite]
    return not a.numel() or bool((a - b).abs().max() <= SAME_WITHIN * a.abs().max())


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
            f"entries move with the samples: {self.inputs.about_the_axis()}; or name other modules"
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
