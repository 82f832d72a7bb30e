"""The states of any model in one forward pass as training runs it: what enters each layer that has a weight matrix.

The last state is what enters the last layer where that gives the model's output, a classifier or the like; else it is
the output itself. Batch norms use the statistics of the batch, dropout is off, and nothing of the model changes:
buffers are copies, modes and random numbers are put back. No graph is exported, so this works where a trace does not.
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
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed, unwrapped


@dataclass(frozen=True)
class State:
    """layer: the path of the module that it enters, with `#2` at its second call. tensor: in the autograd graph.

    axis: that of the samples, 0 also where every sample has several rows; None where they cannot be told apart.
    """

    layer: str
    tensor: Tensor
    axis: int | None

    def by_sample(self, tensor: Tensor, batch: int) -> Tensor:
        """(B, n) in float64 of a tensor of this state's shape, such as its gradient."""
        assert self.axis is not None
        return tensor.detach().movedim(self.axis, 0).reshape(batch, -1).double()


@dataclass(frozen=True)
class Pass:
    """states: in the order in which they were used. output: the model's own, in the same graph."""

    states: tuple[State, ...]
    output: Any
    batch: int


@contextmanager
def training_pass(model: nn.Module, x: Any) -> Iterator[Pass]:
    """Run the model once; the graph can be differentiated inside the context.

    x: a batch of at least two samples, as `skipscope.trace` takes it.
    """
    model = unwrapped(model)
    inputs = Inputs.of(model, x)
    inputs.check_device(model)
    if inputs.batch < 2:
        raise InputError(f"check: expected a batch of at least 2 samples to compare, got {inputs.batch}")
    inputs = inputs.map(lambda t: t.detach().clone().requires_grad_() if t.is_floating_point() else t)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    with undisturbed(model), torch.enable_grad(), _recorded(model, inputs.batch) as record:
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.training = True
        for weight in weights.values():
            weight.requires_grad_(weight.is_floating_point())
        output = torch.func.functional_call(model, (weights, buffers), inputs.args, inputs.kwargs)
        yield Pass(tuple(_with_ends(record, inputs, output)), output, inputs.batch)


def floats(tree: Any) -> list[Tensor]:
    """The float tensors that depend on something."""
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, Tensor) and t.is_floating_point() and t.requires_grad]


class _Record:
    """states: as they enter layers. left: what came out of the layer that was entered last."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.states: list[State] = []
        self.calls: Counter[str] = Counter()
        self.entered = ""
        self.left: Any = None

    def enter(self, path: str, args: Any) -> None:
        self.calls[path] += 1
        self.entered, self.left = path, None
        entering = floats(args)
        if entering and not (self.states and self.states[-1].tensor is entering[0]):  # queries, keys, values share one
            name = path if self.calls[path] == 1 else f"{path}#{self.calls[path]}"
            self.add(name or "input", entering[0])

    def leave(self, path: str, output: Any) -> None:
        if path == self.entered:
            self.left = output

    def add(self, name: str, tensor: Tensor) -> None:
        self.states.append(State(name, tensor, _batch_axis(tensor, self.batch)))


@contextmanager
def _recorded(model: nn.Module, batch: int) -> Iterator[_Record]:
    record = _Record(batch)

    def before(path: str) -> Any:
        return lambda module, args, kwargs: record.enter(path, (args, kwargs))

    def after(path: str) -> Any:
        return lambda module, args, output: record.leave(path, output)

    handles = []
    for path, module in model.named_modules():
        if any(weight.dim() >= 2 for weight in module.parameters(recurse=False)):
            handles += [
                module.register_forward_pre_hook(before(path), with_kwargs=True),
                module.register_forward_hook(after(path)),
            ]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


def _with_ends(record: _Record, inputs: Inputs, output: Any) -> list[State]:
    entering, leaving = floats((inputs.args, inputs.kwargs)), floats(output)
    if not leaving:
        raise InputError("check: expected an output with a float tensor that depends on the weights, found none")
    if not record.states and entering:  # no module of its own around its weights
        record.add("input", entering[0])
    if len(record.states) < 2 or not any(leaf is record.left for leaf in leaving):
        record.add("output", leaving[0])
    if len(record.states) < 2:
        raise InputError("check: expected at least two layers with weights, or a float input; found neither")
    return record.states


def _batch_axis(tensor: Tensor, batch: int) -> int | None:
    """The first axis of the batch's size; else the first one where it is a multiple, as where tokens are folded in."""
    sizes = list(tensor.shape)
    if batch in sizes:
        return sizes.index(batch)
    return 0 if sizes and sizes[0] > 0 and sizes[0] % batch == 0 else None
