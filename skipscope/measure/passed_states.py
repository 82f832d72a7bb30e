"""What passes through the layers of a model at one batch: conditions of states, and ranks of gradients.

Where the samples of a state are is found by a second pass with another number of them: it is the axis whose size
changes as their number does. A state may also have them folded into an axis (samples and tokens), or not at all (a
position embedding on its way into a layer).

States are measured as they pass. Gradients are measured as the backward pass comes by, one error at a time. What is in
memory for them is what a backward pass keeps anyway, and the entries of layers whose weights are frozen; their size is
known before, and more than the memory that is free is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from skipscope.errors import InputError, SkipscopeError
from skipscope.linear.memory import known_free_bytes
from skipscope.measure.gradient_ranks import GradientRanks, gradient_ranks
from skipscope.measure.layers import OUTPUT, Chosen, main_tensor, run, undisturbed_run
from skipscope.module_hooks import Call
from skipscope.spectrum import condition_number
from skipscope.spectrum.condition import Condition, Reduction
from skipscope.trace.inputs import Inputs
from skipscope.wording import counted

NO_SAMPLES = -1  # the axis of a state that is the same for any number of samples
COPIES = 2  # of every state in a backward pass: what enters a layer, and what leaves it

Shape = tuple[int, ...]


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
            leave_out=[axis] if state.dim() > 2 and axis not in (channel, NO_SAMPLES) else [],
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
    shape: Shape
    sample_axis: int
    state: State | None
    entry: Tensor | None = None  # kept for the gradient
    module: nn.Module | None = None
    ranks: GradientRanks | None = None


@dataclass
class Passed:
    """The rows of one pass, in the order of calls."""

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
        axes = SampleAxes(model, inputs)
        if loss is not None:
            axes.check_memory()
        last: list[nn.Module] = []
        start = torch.zeros((), device=next(iter(inputs.tensors())).device, requires_grad=True)

        def entered(layer: Call, state: Tensor | None) -> None:
            last[:] = [layer.module]
            kind = type(layer.module).__name__
            if self.chosen.include(layer.name, layer.path) and self._add(layer.name, kind, state, layer.module, axes):
                self.rows[-1].module = layer.module
                if loss is not None and state is not None:
                    # Autograd needs what enters a layer that learns, and refuses that it is changed in place.
                    learns = any(weight.requires_grad for weight in layer.module.parameters() if weight.dim() >= 2)
                    self.rows[-1].entry = state.detach() if learns else state.detach().clone()

        def left(layer: Call, output: Tensor) -> Tensor | None:
            row = next((row for row in reversed(self.rows) if row.name == layer.name), None)
            if row is None or not output.is_floating_point():
                return None
            found: Tensor = _Watched.apply(output, start, partial(_ranked, row, inputs.batch))
            return found

        with undisturbed_run(model, gradients=loss is not None, batch_statistics=batch_statistics):
            output = run(model, inputs, entered, None if loss is None else left)
            if self.chosen.include(OUTPUT):
                self._add(OUTPUT, OUTPUT, main_tensor(output), last[0] if last else None, axes)
            if loss is not None:
                self._differentiate(loss(output), start)

    def _add(self, name: str, kind: str, state: Tensor | None, layer: nn.Module | None, axes: SampleAxes) -> bool:
        """layer: which says what axis the channels are at."""
        if state is None or state.dim() < 2 or not state.numel():
            what = "no floating-point tensor" if state is None else f"shape {tuple(state.shape)}"
            self.left_out.append(f"state at {name}: {what}")
            return False
        axis = axes.of(name, tuple(state.shape))
        if isinstance(axis, str):
            self.left_out.append(f"state at {name}: {axis}")
            return False
        channel = state.dim() - 1
        if isinstance(layer, _ConvNd):
            channel = max(state.dim() - layer.weight.dim() + 1, 0)
        measured = State.of(state.detach(), axis, channel) if self.states else None
        self.rows.append(Row(name, kind, tuple(state.shape), axis, measured))
        return True

    def _differentiate(self, loss: Tensor, start: Tensor) -> None:
        self.loss = float(loss.detach())
        if not any(row.entry is not None for row in self.rows):
            self.left_out.append("gradients: there is no layer to measure them at")
            return
        if not loss.requires_grad:
            raise InputError("conditioning: the loss depends on no layer that is measured; there are no gradients")
        torch.autograd.grad(loss, start, allow_unused=True)
        for row in self.rows:
            row.entry = None


class _Watched(torch.autograd.Function):
    """A copy, since later code may change it in place; its error is told as the backward pass comes by.

    start: a leaf that every layer's output depends on, so that a backward pass to it visits them all and no weights.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, start: Tensor, tell: Callable[[Tensor], None]) -> Tensor:
        ctx.tell = tell
        return output.clone()

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, None, None]:
        ctx.tell(error)
        return error, None, None


def _ranked(row: Row, samples: int, error: Tensor) -> None:
    if row.module is not None and row.entry is not None:
        with torch.no_grad():
            row.ranks = gradient_ranks(row.module, row.entry, error.detach(), samples)
        row.entry = None


# -- where the samples are


class SampleAxes:
    """Of all states, from their shapes at the batch and at another number of the same samples."""

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        self.inputs, self.device = inputs, next(iter(inputs.tensors())).device
        self.others = 2 if inputs.batch != 2 else 3
        self.shapes: dict[str, Shape] | None
        try:
            self.shapes = state_shapes(model, inputs.with_samples(self.others))
        except SkipscopeError:  # it runs at one number of samples alone
            self.shapes = None

    def of(self, name: str, shape: Shape) -> int | str:
        """The axis; NO_SAMPLES where none depends on their number; words where it is not known."""
        batch = self.inputs.batch
        if self.shapes is None:
            found = [place for place, size in enumerate(shape) if size == batch]
            if found == [self.inputs.axis]:
                return self.inputs.axis
            return f"shape {shape}, where the samples may be at several axes or none: the model runs at {batch} alone"
        other = self.shapes.get(name, ())
        if len(other) != len(shape):
            return f"shape {shape}, and {other or 'no call'} at {self.others} samples"
        changed = [place for place, (size, its) in enumerate(zip(shape, other, strict=True)) if size != its]
        followed = [place for place in changed if shape[place] * self.others == other[place] * batch]
        if not changed:
            return NO_SAMPLES
        if len(changed) > 1 or not followed:
            return f"shape {shape}, and {other} at {self.others} samples: no one axis runs over the samples"
        return followed[0]

    def check_memory(self) -> None:
        """Refuses a backward pass that does not fit."""
        free = known_free_bytes(self.device)
        if self.shapes is None or free is None:
            return
        entries = sum(map(math.prod, self.shapes.values())) / self.others * self.inputs.batch
        needed = COPIES * entries * max(tensor.element_size() for tensor in self.inputs.tensors())
        if needed > free:
            raise InputError(
                f"conditioning: gradients at {counted(self.inputs.batch, 'sample')} need about "
                f"{needed / 1e9:.1f} GB for the states of all layers, and {free / 1e9:.1f} GB are free; "
                "take fewer samples"
            )


def state_shapes(model: nn.Module, inputs: Inputs) -> dict[str, Shape]:
    """The shapes of all states at a batch, by layer; at last that of the output."""
    found: dict[str, Shape] = {}

    def entered(layer: Call, state: Tensor | None) -> None:
        if state is not None:
            found[layer.name] = tuple(state.shape)

    with undisturbed_run(model):
        output = main_tensor(run(model, inputs, entered))
    return found if output is None else {**found, OUTPUT: tuple(output.shape)}
