"""The states of any model in one forward pass as training runs it: what enters each layer that has a weight matrix.

The last state is what enters the last layer where that gives the model's output, a classifier or the like, or what a
mean over places was taken of just before; else it is the output itself. Batch norms use the statistics of the batch,
dropout is off, and nothing of the model changes: buffers are copies, modes and random numbers are put back. No graph is
exported, so this works where a trace does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter
from torch.overrides import TorchFunctionMode

from skipscope.errors import InputError, first_line
from skipscope.linear.memory import out_of_memory
from skipscope.measure.layers import OUTPUT, float_tensors, modules_with_weights
from skipscope.module_hooks import Call, following
from skipscope.trace.export import does_not_run
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed, unwrapped


@dataclass(frozen=True)
class State:
    """layer: the path of the module that it enters, with `#2` at its second call. tensor: in the autograd graph.

    axis: that of the samples, 0 also where every sample has several rows; None where no axis is theirs.
    """

    layer: str
    tensor: Tensor
    axis: int | None

    def by_sample(self, tensor: Tensor, batch: int) -> Tensor:
        """(B, n) in float64 of a tensor of this state's shape, such as its gradient."""
        if self.axis is None:
            raise ValueError(f"the state at {self.layer} has no axis of samples")
        return tensor.detach().movedim(self.axis, 0).reshape(batch, -1).double()


@dataclass(frozen=True)
class Pass:
    """states: in the order in which they were used. output: the model's own, in the same graph.

    first: the number of the state that others are compared with, what enters the second layer where there is one: the
    first layer and its norm have turned the input's units into the network's own. input_rms: None where no float tensor
    is among the inputs. cut: layers that ran and get no gradient from the output. frozen: layers whose weights the user
    keeps from training; they are measured like others.
    """

    states: tuple[State, ...]
    output: Any
    batch: int
    first: int
    input_rms: float | None
    cut: tuple[str, ...]
    frozen: tuple[str, ...]


@contextmanager
def training_pass(model: nn.Module, x: Any) -> Iterator[Pass]:
    """Run the model once; the graph can be differentiated inside the context.

    x: a batch of at least two samples, as `skipscope.trace` takes it.
    """
    model = checked_model(model)
    inputs = Inputs.of(model, x)
    inputs.check_device(model)
    refuse_infinite(inputs)
    values = [t for t in inputs.tensors() if t.is_floating_point()]
    if inputs.batch < 2:
        raise InputError(f"check: expected a batch of at least 2 samples to compare, got {inputs.batch}")
    inputs = inputs.map(lambda t: t.detach().requires_grad_().clone() if t.is_floating_point() else t.clone())
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    record = _Record(inputs.batch)
    layers = {"" if module is model else name: module for name, module in modules_with_weights(model).items()}
    with in_training(model), following(layers, entered=record.enter, left=record.leave):
        for weight in weights.values():
            weight.requires_grad_(weight.is_floating_point())
        with _Means(record):
            output = output_of(model, inputs, (weights, buffers))
        entering, leaving = floats((inputs.args, inputs.kwargs)), floats(output)
        states = tuple(_with_ends(record, entering, leaving))
        yield Pass(
            states,
            output,
            inputs.batch,
            int(record.from_input and states[1].layer != OUTPUT),
            _input_rms(values),
            tuple(_without_gradient(record, weights, frozen, leaving)),
            tuple(path for path in record.calls if any(name in frozen for name in _owned(path, weights))),
        )


def checked_model(model: nn.Module) -> nn.Module:
    """The user's own module behind wrappers, if it can be checked."""
    if not isinstance(model, nn.Module):
        raise InputError(f"check: expected a torch.nn.Module as the model, got {type(model).__name__}")
    model, name = unwrapped(model), type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(f"check: expected a torch.nn.Module written in Python, got a TorchScript module ({name})")
    lazy = [path for path, weight in model.named_parameters() if isinstance(weight, UninitializedParameter)]
    if lazy:
        raise InputError(
            f"check: {name} has weights that have no shape yet ({lazy[0]}); run it on a batch once, then check it"
        )
    if not any(weight.dim() >= 2 and weight.is_floating_point() for weight in model.parameters()):
        raise InputError(f"check: expected a model with a weight of two dimensions or more, {name} has none")
    return model


def refuse_infinite(inputs: Inputs) -> None:
    if not all(bool(t.isfinite().all()) for t in inputs.tensors() if t.is_floating_point()):
        raise InputError("check: expected finite inputs, got some that are infinite or not a number")


@contextmanager
def in_training(model: nn.Module) -> Iterator[None]:
    """As a training runs it, without randomness: batch norms take the statistics of the batch, dropout is off."""
    with undisturbed(model), torch.enable_grad():
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.training = True
        yield


def floats(tree: Any) -> list[Tensor]:
    """The float tensors that depend on something."""
    return [tensor for tensor in float_tensors(tree) if tensor.requires_grad]


def output_of(model: nn.Module, inputs: Inputs, values: tuple[dict[str, Tensor], ...] | None = None) -> Any:
    """values: instead of the model's own weights and buffers."""
    try:
        if values is None:
            return model(*inputs.args, **inputs.kwargs)
        return torch.func.functional_call(model, values, inputs.args, inputs.kwargs)
    except Exception as error:  # whatever the user's forward raises
        if out_of_memory(error):
            raise
        raise does_not_run(model, inputs, error) from error


def _input_rms(values: list[Tensor]) -> float | None:
    count = sum(t.numel() for t in values)
    return (sum(float(t.detach().double().square().sum()) for t in values) / count) ** 0.5 if count else None


def _owned(path: str, weights: dict[str, Tensor]) -> list[str]:
    """Names of a layer's own weights of two dimensions or more, also where they are parametrised."""
    inside = f"{path}.parametrizations." if path else "parametrizations."
    return [
        name
        for name, weight in weights.items()
        if weight.dim() >= 2 and (name.rpartition(".")[0] == path or name.startswith(inside))
    ]


def _without_gradient(
    record: _Record, weights: dict[str, Tensor], frozen: set[str], leaving: list[Tensor]
) -> list[str]:
    """Layers that ran, are not frozen, and on which the output does not depend as automatic differentiation sees it."""
    trained = {name: weight for name, weight in weights.items() if weight.requires_grad and name not in frozen}
    owned = {path: _owned(path, trained) for path in record.calls}
    names = [name for each in owned.values() for name in each]
    if not names:
        return []
    ones = [torch.ones_like(leaf) for leaf in leaving]
    try:
        found = torch.autograd.grad(leaving, [weights[n] for n in names], ones, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise InputError(f"the model cannot be differentiated, so it cannot be trained: {first_line(error)}") from error
    reached = {name for name, gradient in zip(names, found, strict=True) if gradient is not None}
    return [path or "input" for path, each in owned.items() if each and reached.isdisjoint(each)]


class _Record:
    """states: as they enter layers. left: what came out of the layer that was entered last.

    from_input: whether the first layer takes a float tensor. averaged: what the last mean was taken of, and the mean.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.states: list[State] = []
        self.calls: Counter[str] = Counter()
        self.entered = ""
        self.left: Any = None
        self.from_input = False
        self.averaged: tuple[Tensor, Tensor] | None = None
        self.before_mean: dict[int, Tensor] = {}  # by the number of the state that the mean became

    def enter(self, call: Call) -> None:
        self.calls[call.path] += 1
        self.entered, self.left = call.path, None
        entering = floats((call.args, call.kwargs))
        self.from_input = self.from_input or (self.calls.total() == 1 and bool(entering))
        if entering and not (self.states and self.states[-1].tensor is entering[0]):  # queries, keys, values share one
            self.add(call.name or "input", entering[0])
            averaged, self.averaged = self.averaged, None
            if averaged is not None and averaged[1].numel() == entering[0].numel():
                self.before_mean[len(self.states) - 1] = averaged[0]

    def leave(self, call: Call, output: Any) -> None:
        if call.path == self.entered:
            self.left = output

    def add(self, name: str, tensor: Tensor) -> None:
        self.states.append(State(name, tensor, _batch_axis(tensor, self.batch)))


class _Means(TorchFunctionMode):
    """Keeps the last mean that makes a tensor smaller, and what it was taken of."""

    def __init__(self, record: _Record) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if (name == "mean" or "avg_pool" in name) and isinstance(found, Tensor):
            of = next(iter(floats((args, kwargs))), None)
            if of is not None and of.numel() > found.numel():
                self.record.averaged = (of, found)
        return found


def _with_ends(record: _Record, entering: list[Tensor], leaving: list[Tensor]) -> list[State]:
    if not leaving:
        raise InputError("check: expected an output with a float tensor that depends on the weights, found none")
    if not record.states and entering:  # no module of its own around its weights
        record.add("input", entering[0])
    if len(record.states) < 2 or not any(leaf is record.left for leaf in leaving):
        record.add(OUTPUT, leaving[0])
    elif (end := len(record.states) - 1) in record.before_mean:
        tensor = record.before_mean[end]
        record.states[end] = State(record.states[end].layer, tensor, _batch_axis(tensor, record.batch))
    if len(record.states) < 2:
        raise InputError("check: expected at least two layers with weights, or a float input; found neither")
    return record.states


def _batch_axis(tensor: Tensor, batch: int) -> int | None:
    """The first axis of the batch's size; else the first one where it is a multiple, as where tokens are folded in."""
    sizes = list(tensor.shape)
    if batch in sizes:
        return sizes.index(batch)
    return 0 if sizes and sizes[0] > 0 and sizes[0] % batch == 0 else None
