"""Does a model fit? Answered before it is built, on a copy on the meta device that allocates nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from skipscope.errors import InputError

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


def free_memory(device: torch.device) -> int | None:
    """Bytes free on a device; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):  # counts what the page cache would give back
            free = int(line.split()[1]) * 1024
    limit, used = _lines("/sys/fs/cgroup/memory.max"), _lines("/sys/fs/cgroup/memory.current")
    if limit and used and limit[0].isdigit():  # a container's limit, below the machine's
        free = min(free, int(limit[0]) - int(used[0]))
    return free


def require_room(size: int, device: torch.device, description: str, what: str = "its weights") -> None:
    """Refuse a model that does not fit, with numbers, before the system kills the process."""
    free = free_memory(device)
    if free is not None and size > free:
        raise InputError(
            f"{description} needs {size / GIB:.1f} GiB for {what}, and {device.type} has {free / GIB:.1f} GiB "
            "free; use a smaller model or configuration, or a machine with more memory"
        )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().split("\n")
    except OSError:
        return []
