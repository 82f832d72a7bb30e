"""The layers that a `Tracker` looks at, and what they pass on in a forward pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from skipscope.errors import InputError
from skipscope.module_hooks import Call, following
from skipscope.training.modes import in_mode
from skipscope.training.streaming import Stream

Layer = str | int  # a module's name, or its place in the order of calls


def weight_of(module: nn.Module) -> nn.Parameter:
    return dict(module.named_parameters(recurse=False))["weight"]


def _has_weight(module: nn.Module) -> bool:
    weight = dict(module.named_parameters(recurse=False)).get("weight")
    return weight is not None and weight.dim() >= 2


def called_layers(model: nn.Module, buffers: dict[str, Tensor], images: Tensor) -> dict[str, nn.Module]:
    """The layers in the order of their first calls, in evaluation mode, where no branch is left out by chance."""
    found: dict[str, nn.Module] = {}

    def note(call: Call) -> None:
        found.setdefault(call.path, call.module)

    layers = {name: module for name, module in model.named_modules() if _has_weight(module)}
    with following(layers, entered=note), in_mode(model, training=False), torch.no_grad():
        functional_call(model, buffers, (images,))
    if not found:
        raise InputError(f"Tracker: {type(model).__name__} calls no module with a weight of two or more dimensions")
    return found


def chosen_layers(layers: Sequence[Layer], names: list[str]) -> list[str]:
    found = []
    for layer in layers:
        if isinstance(layer, str):
            if layer not in names:
                raise InputError(f"Tracker: no layer '{layer}' is called; expected one of {', '.join(names)}")
            found.append(layer)
        else:
            if not -len(names) <= layer < len(names):
                raise InputError(f"Tracker: expected a layer from {-len(names)} to {len(names) - 1}, got {layer}")
            found.append(names[layer])
    return list(dict.fromkeys(found))  # in a network of two layers the first one is also the last but one


@contextmanager
def streaming_activations(layers: Mapping[str, nn.Module], streams: Mapping[str, Stream]) -> Iterator[Any]:
    """Inside, a forward pass fills the streams; call what it gives with the pass's output."""
    waiting: list[tuple[str, Any]] = []  # layers that have been called, and where their output is in autograd's graph

    def give(state: Tensor) -> None:
        for call in list(waiting):
            name, node = call
            if _depends(state.grad_fn, node):
                streams[name].update(state)
                waiting.remove(call)

    def entered(call: Call) -> None:
        for state in (*call.args, *call.kwargs.values()):
            if isinstance(state, Tensor):
                give(state)

    def left(call: Call, output: Any) -> None:
        if not isinstance(output, Tensor) or output.grad_fn is None:
            raise InputError(f"Tracker: expected one tensor with a gradient as the output of '{call.path}'")
        waiting.append((call.path, output.grad_fn))

    def finish(output: Tensor) -> None:
        give(output)
        if waiting:
            unused = ", ".join(sorted({name for name, _ in waiting}))
            raise InputError(f"Tracker: expected layers that the network's output depends on, got {unused}")

    followed = {name: layers[name] for name in streams}
    with following(layers, entered=entered), following(followed, left=left):
        yield finish


def _depends(node: Any, on: Any) -> bool:
    """Whether autograd would come from one node of its graph to the other; the near ones are looked at first."""
    seen, waiting = {node}, deque([node])
    while waiting:
        here = waiting.popleft()
        if here is on:
            return True
        for before, _ in () if here is None else here.next_functions:
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return False
