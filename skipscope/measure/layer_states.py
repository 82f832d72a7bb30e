"""What passes through the layers of a model at one batch: the condition of every state, and gradients at the layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.measure.gradient_ranks import GradientRanks, gradient_ranks
from skipscope.measure.layers import OUTPUT, Chosen, Layer, main_tensor, run, sample_axis, undisturbed_run
from skipscope.spectrum import condition_number
from skipscope.spectrum.condition import Condition, Reduction
from skipscope.trace.inputs import Inputs


@dataclass(frozen=True)
class State:
    """A hidden state over the whole batch."""

    condition: Condition
    channel: int  # axis of units or channels

    @classmethod
    def of(cls, state: Tensor, axis: int, channel: int) -> State:
        """axis: that of the samples."""
        condition = condition_number(
            state,
            reduce="max",
            leave_out=[axis] if state.dim() > 2 and axis != channel else [],
            precision=torch.float64 if state.dtype == torch.float64 else torch.float32,
            size=max(state.shape),
        )
        return cls(condition, channel)

    def reduced(self) -> list[Condition]:
        names: tuple[Reduction, ...] = ("max", "global", "channel", "channel")
        return [self.condition.reduced(reduce, self.channel) for reduce in names]

    @property
    def zero_units(self) -> int:
        """Units or channels that are exactly zero for all samples and places."""
        return self.condition.zero_slices[self.channel]

    @property
    def limited(self) -> bool:
        """Fewer samples and places than channels."""
        shape = self.condition.shape
        return math.prod(shape) // shape[self.channel] < shape[self.channel]


@dataclass
class Row:
    """A layer, or the model's output."""

    name: str
    kind: str
    shape: tuple[int, ...]
    sample_axis: int
    state: State | None
    entry: Tensor | None = None  # kept for the gradient
    exit: Tensor | None = None
    module: nn.Module | None = None
    ranks: GradientRanks | None = None


@dataclass
class Passed:
    """What passes through a model: states are measured at once, entries and exits are kept for gradients alone."""

    chosen: Chosen
    states: bool
    rows: list[Row] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    loss: float = math.nan

    def through(
        self,
        model: nn.Module,
        inputs: Inputs,
        loss: Callable[[Any], Tensor] | None = None,
        *,
        batch_statistics: bool = False,
    ) -> None:
        last: list[Layer] = []

        def entered(layer: Layer, state: Tensor | None) -> None:
            last[:] = [layer]
            if self.chosen.include(layer.name, layer.path) and self._add(layer.name, layer.kind, state, layer, inputs):
                self.rows[-1].module = layer.module
                if loss is not None and state is not None:
                    self.rows[-1].entry = state.detach().clone()  # later code may change it in place

        def left(layer: Layer, output: Tensor) -> None:
            for row in self.rows:
                if row.name == layer.name:
                    row.exit = output

        with undisturbed_run(model, gradients=loss is not None, batch_statistics=batch_statistics):
            output = run(model, inputs, entered, None if loss is None else left)
            if self.chosen.include(OUTPUT):
                self._add(OUTPUT, OUTPUT, main_tensor(output), last[0] if last else None, inputs)
            if loss is not None:
                self._differentiate(loss(output), inputs.batch)

    def _add(self, name: str, kind: str, state: Tensor | None, layer: Layer | None, inputs: Inputs) -> bool:
        """layer: which says what axis the channels are at."""
        if state is None or state.dim() < 2 or not state.numel():
            what = "no floating-point tensor" if state is None else f"shape {tuple(state.shape)}"
            self.left_out.append(f"state at {name}: {what}")
            return False
        axis = sample_axis(state.shape, inputs.batch, inputs.axis)
        channel = layer.channel(state.dim()) if layer else state.dim() - 1
        measured = State.of(state.detach(), axis, channel) if self.states else None
        self.rows.append(Row(name, kind, tuple(state.shape), axis, measured))
        return True

    def _differentiate(self, loss: Tensor, samples: int) -> None:
        self.loss = float(loss.detach())
        reached = {row.name: row.exit for row in self.rows if row.exit is not None}
        if not reached:
            self.left_out.append("gradients: there is no layer to measure them at")
            return
        if not loss.requires_grad:
            raise InputError("conditioning: the loss depends on no layer that is measured; there are no gradients")
        found = torch.autograd.grad(loss, list(reached.values()), allow_unused=True)
        errors = dict(zip(reached, found, strict=True))
        for row in self.rows:
            error = errors.get(row.name)
            if row.module is not None and row.entry is not None and error is not None:
                row.ranks = gradient_ranks(row.module, row.entry, error, samples)
            row.entry = row.exit = None


def state_shapes(model: nn.Module, inputs: Inputs) -> dict[str, tuple[int, ...]]:
    """The shapes of all states at a batch, by layer."""
    passed = Passed(Chosen(None), states=False)
    passed.through(model, inputs)
    return {row.name: row.shape for row in passed.rows}


def operations(shape: Sequence[int]) -> float:
    """About how many operations the condition number of a weight or a state takes."""
    sizes = [(size, math.prod(shape) // max(size, 1)) for size in (shape[:1] if len(shape) == 2 else shape)]
    return float(sum(8 * max(sides) * min(sides) ** 2 for sides in sizes))
