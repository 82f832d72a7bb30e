"""The layers of a model as they are called: modules with a weight of two dimensions or more of their own.

A layer's state is what enters it, so that an activation that is written as a function is seen after it has acted. A
second call of a module is a layer of its own, `name#2`. `Passed` has the condition of every state at one batch, and the
ranks of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.measure.gradient_ranks import GradientRanks, gradient_ranks
from skipscope.module_hooks import Call, following
from skipscope.spectrum import condition_number
from skipscope.spectrum.condition import Condition, Reduction
from skipscope.trace.export import does_not_run
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed

OUTPUT = "output"


class Chosen:
    """Names or patterns such as `stage1.*`; None for all. Each has to match something."""

    def __init__(self, patterns: str | Sequence[str] | None) -> None:
        self.patterns = [patterns] if isinstance(patterns, str) else patterns and list(patterns)
        if self.patterns is not None and not (self.patterns and all(isinstance(p, str) for p in self.patterns)):
            raise InputError(f"layers={patterns!r}: expected names or patterns such as 'stage1.*'")
        self._used: set[str] = set()

    def include(self, *names: str) -> bool:
        """names: a pattern may match any of them."""
        if self.patterns is None:
            return True
        found = {pattern for pattern in self.patterns if any(fnmatchcase(name, pattern) for name in names)}
        self._used |= found
        return bool(found)

    def check(self, known: Sequence[str]) -> None:
        unused = [pattern for pattern in self.patterns or () if pattern not in self._used]
        if unused:
            shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
            raise InputError(f"layers: {unused[0]!r} matches no layer and no weight; there are {shown or 'none'}")


Entered = Callable[[Call, Tensor | None], None]  # None: no floating-point tensor enters it
Left = Callable[[Call, Tensor], None]


def modules_with_weights(model: nn.Module) -> dict[str, nn.Module]:
    """By path. The model itself is one only where it has no parts, under the name of its class."""
    found = {path: module for path, module in model.named_modules() if path and _has_weight(module)}
    if not found and next(model.children(), None) is None and _has_weight(model):
        return {type(model).__name__: model}
    return found


def acting_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights of two dimensions or more by name: what layers multiply by, where they make it from parameters too.

    Such a layer has torch's parametrizations, or says what it makes as `effective_weight`.
    """
    found: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        before, parametrised, after = f".{name}".partition(".parametrizations.")
        path, _, own = (
            f"{before[1:]}.{after.partition('.')[0]}".rpartition(".") if parametrised else name.rpartition(".")
        )
        module = model.get_submodule(path)
        made = getattr(module, "effective_weight", None) if own == "weight" else None
        value = made if isinstance(made, Tensor) else getattr(module, own) if parametrised else weight
        if value.dim() >= 2:
            found.setdefault(f"{path}.{own}" if path else own, value.detach())
    return found


@contextmanager
def undisturbed_run(model: nn.Module, *, gradients: bool = False, batch_statistics: bool = False) -> Iterator[None]:
    """Evaluation mode, everything put back; with `batch_statistics` batch norms normalise as in training, and their
    running statistics are put aside, so that it is copies of them that move."""
    norms = [module for module in model.modules() if batch_statistics and isinstance(module, _BatchNorm)]
    aside = [dict(norm._buffers) for norm in norms]
    with undisturbed(model), torch.set_grad_enabled(gradients):
        try:
            for norm, buffers in zip(norms, aside, strict=True):
                norm.training = True
                norm._buffers.update({name: None if old is None else old.clone() for name, old in buffers.items()})
            yield
        finally:
            for norm, buffers in zip(norms, aside, strict=True):
                norm._buffers.update(buffers)


def run(model: nn.Module, inputs: Inputs, entered: Entered, left: Left | None = None) -> Any:
    """The model's output; `entered` is called with every layer's state, `left` with what it returns, which has a
    gradient also where all weights are frozen."""

    def enter(call: Call) -> None:
        entered(call, main_tensor((call.args, call.kwargs)))

    def leave(call: Call, output: Any) -> Tensor | None:
        if left is None or not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        if not output.requires_grad:
            output = output.detach().requires_grad_()
        left(call, output)
        return output.clone()  # later code may change it in place

    with following(modules_with_weights(model), entered=enter, left=None if left is None else leave):
        try:
            return model(*inputs.args, **inputs.kwargs)
        except InputError:
            raise
        except Exception as error:  # whatever the user's forward raises
            raise does_not_run(model, inputs, error) from error


def float_tensors(values: Any) -> list[Tensor]:
    """The floating-point tensors of arguments or outputs."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def main_tensor(values: Any) -> Tensor | None:
    return next(iter(float_tensors(values)), None)


def sample_axis(shape: Sequence[int], batch: int, axis: int) -> int:
    """Where the samples are: at `axis`, or along the first other axis of their number, or folded into the first."""
    if len(shape) > axis and shape[axis] == batch:
        return axis
    return next((place for place, size in enumerate(shape) if size == batch), 0)


def _has_weight(module: nn.Module) -> bool:
    if isinstance(module, nn.ParameterList | nn.ParameterDict | ParametrizationList):
        return False
    if any(weight.dim() >= 2 for weight in module.parameters(recurse=False)):
        return True
    return "weight" in getattr(module, "parametrizations", {}) and module.weight.dim() >= 2  # type: ignore[operator]


# -- what passes through them


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
        last: list[nn.Module] = []

        def entered(layer: Call, state: Tensor | None) -> None:
            last[:] = [layer.module]
            kind = type(layer.module).__name__
            if self.chosen.include(layer.name, layer.path) and self._add(layer.name, kind, state, layer.module, inputs):
                self.rows[-1].module = layer.module
                if loss is not None and state is not None:
                    self.rows[-1].entry = state.detach().clone()  # later code may change it in place

        def left(layer: Call, output: Tensor) -> None:
            for row in self.rows:
                if row.name == layer.name:
                    row.exit = output

        with undisturbed_run(model, gradients=loss is not None, batch_statistics=batch_statistics):
            output = run(model, inputs, entered, None if loss is None else left)
            if self.chosen.include(OUTPUT):
                self._add(OUTPUT, OUTPUT, main_tensor(output), last[0] if last else None, inputs)
            if loss is not None:
                self._differentiate(loss(output), inputs.batch)

    def _add(self, name: str, kind: str, state: Tensor | None, layer: nn.Module | None, inputs: Inputs) -> bool:
        """layer: which says what axis the channels are at."""
        if state is None or state.dim() < 2 or not state.numel():
            what = "no floating-point tensor" if state is None else f"shape {tuple(state.shape)}"
            self.left_out.append(f"state at {name}: {what}")
            return False
        axis = sample_axis(state.shape, inputs.batch, inputs.axis)
        channel = state.dim() - 1
        if isinstance(layer, _ConvNd):
            channel = max(state.dim() - layer.weight.dim() + 1, 0)
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
