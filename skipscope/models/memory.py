"""Does a model fit? Answered before it is built, on a copy on the meta device that allocates nothing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from skipscope.errors import InputError
from skipscope.linear.memory import known_free_bytes

GIB = 2**30
ALLOCATE_AT_MOST = GIB  # above this, a model whose values are not needed stays on the meta device


def on_meta(build: Callable[[], nn.Module]) -> nn.Module | None:
    """The model without memory, or None where its constructor computes with values (a few small ones do)."""
    try:
        with torch.device("meta"):
            return build()
    except Exception:  # what is wrong on every device is raised again, and then shown, by the real build
        return None


def size_of(model: nn.Module) -> int:
    """Bytes of all weights and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *model.buffers()])


def require_room(size: int, device: torch.device, description: str, what: str = "its weights") -> None:
    """Refuse a model that does not fit, with numbers, before the system kills the process."""
    free = known_free_bytes(device)
    if free is not None and size > free:
        raise InputError(
            f"{description} needs {size / GIB:.1f} GiB for {what}, and {device.type} has {free / GIB:.1f} GiB "
            "free; use a smaller model or configuration, or a machine with more memory"
        )
