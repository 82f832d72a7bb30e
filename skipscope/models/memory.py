"""Do a model and its inputs fit? Answered before they are made, on the meta device, which allocates nothing."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from skipscope.errors import InputError
from skipscope.linear.memory import known_free_bytes
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed

GIB = 2**30
LARGEST_ALLOCATION = 2**62  # bytes; no allocator is asked for more where the system does not say what is free
SMALL_BATCH = 2**16  # bytes; below this, nothing that a network makes of a batch is too large
ALLOCATE_AT_MOST = GIB  # above this, a model whose values are not needed stays on the meta device


def on_meta(build: Callable[[], nn.Module]) -> nn.Module | None:
    """The model without memory, or None where its constructor computes with values (a few small ones do)."""
    try:
        with torch.device("meta"):
            return build()
    except Exception:  # what is wrong on every device is raised by the real build, and shown there
        return None


def size_of(model: nn.Module) -> int:
    """Bytes of all weights and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *model.buffers()])


def require_input_room(shape: Sequence[int], dtype: torch.dtype, values: bool = True) -> None:
    """Refuse a batch of random inputs that does not fit, before it is drawn. One without values takes no memory."""
    size = math.prod(shape) * dtype.itemsize
    free = known_free_bytes(torch.device("cpu")) if values else None
    if size > (LARGEST_ALLOCATION if free is None else free):
        has = "" if free is None else f", and cpu has {free / GIB:.1f} GiB free"
        raise InputError(
            f"inputs of {' x '.join(map(str, shape))} need {size / GIB:.1f} GiB{has}; "
            "take fewer samples, or a smaller input_shape="
        )


def require_forward_room(model: nn.Module, batch: Any, description: str) -> None:
    """Refuse a batch at which no pass can fit: the inputs and outputs of one operation are in memory together.

    A lower bound of what a pass takes, from one on the meta device, as far as that goes: a forward that looks at values
    ends it there. What is wrong with the model or the batch is reported where it is run with values.
    """
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    free = None if device.type == "meta" else known_free_bytes(device)
    if free is None or sum(leaf.numel() * leaf.element_size() for leaf in leaves) < SMALL_BATCH:
        return
    largest = _Largest()
    with contextlib.suppress(Exception):
        twin = without_values(model)
        inputs = Inputs.of(twin, pytree.tree_map_only(Tensor, lambda tensor: tensor.to("meta"), batch))
        with undisturbed(twin), largest:
            twin(*inputs.args, **inputs.kwargs)
    if largest.bytes > free:
        raise InputError(
            f"{description} needs {largest.bytes / GIB:.1f} GiB for {largest.operation} at these inputs, and "
            f"{device.type} has {free / GIB:.1f} GiB free; take fewer samples, or a smaller input_shape="
        )


def without_values(model: nn.Module) -> nn.Module:
    """A copy on the meta device. A forward may keep what it computes (a table of positions, made at the first pass): in
    the model itself that would be a table without values, for good."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for tensor in pytree.tree_leaves(vars(module)):
            if isinstance(tensor, nn.Parameter):
                memo[id(tensor)] = nn.Parameter(tensor.detach().to("meta"), requires_grad=tensor.requires_grad)
            elif isinstance(tensor, Tensor):
                memo[id(tensor)] = tensor.detach().to("meta")
    return copy.deepcopy(model, memo)


def on_meta_device(model: nn.Module) -> bool:
    """Whether some of its weights or buffers have no values."""
    return any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


class _Largest(TorchDispatchMode):
    """The operation with the most bytes in its inputs and outputs; tensors that share their memory count once."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.operation = 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs, found)) if isinstance(leaf, Tensor)]
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
        if (size := sum(storages.values())) > self.bytes:
            self.bytes, self.operation = size, str(func.overloadpacket).removeprefix("aten.")
        return found


def require_room(size: int, device: torch.device, description: str, what: str = "its weights") -> None:
    """Refuse a model that does not fit, with numbers, before the system kills the process."""
    free = known_free_bytes(device)
    if free is not None and size > free:
        raise InputError(
            f"{description} needs {size / GIB:.1f} GiB for {what}, and {device.type} has {free / GIB:.1f} GiB "
            "free; use a smaller model or configuration, or a machine with more memory"
        )
