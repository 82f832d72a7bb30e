"""How many vectors a product may hold at once: planned from free memory, halved when that was too many."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from skipscope.errors import out_of_memory as out_of_memory
from skipscope.memory_limit import left_of_limits, smallest_limit

LARGEST_BLOCK = 1024  # more vectors at once gain nothing on any device
SHARE_OF_FREE_MEMORY = 0.4  # of the free memory that one product may take
# Bytes of a product for which nobody is asked what is free: asking takes longer than the product.
ALWAYS_FITS = {"cpu": 1 << 26, "cuda": 1 << 30}
LARGEST_LIMIT = 1 << 62  # bytes, where the user sets none
GUESSED_FREE_BYTES = 2 << 30  # bytes, where the system does not report what is free


def free_bytes(device: torch.device) -> int:
    """What may be taken on a device: what is free, and no more than is left of a limit of the user's."""
    known, left = known_free_bytes(device), left_of_limits(device)
    free = GUESSED_FREE_BYTES if known is None else known
    return free if left is None else min(free, left)


def known_free_bytes(device: torch.device) -> int | None:
    """What can be allocated on a device; None where the system does not report it."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    # What the page cache would give back counts as free, and a container's limit may be below the machine's.
    free = _numbers("/proc/meminfo").get("MemAvailable:", free // 1024) * 1024
    limit, used = (_numbers(f"/sys/fs/cgroup/memory.{name}").get("", None) for name in ("max", "current"))
    if limit is not None and used is not None:
        cached = _numbers("/sys/fs/cgroup/memory.stat").get("inactive_file", 0)
        free = min(free, max(limit - used + cached, 0))
    return free


def _numbers(path: str) -> dict[str, int]:
    """Lines `name number ...` of a file of the kernel, by name; a number alone has the name "", no file no lines."""
    try:
        lines = [line.split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return {}
    named = [["", *words] if len(words) == 1 else words for words in lines if words]
    return {words[0]: int(words[1]) for words in named if words[1].isdigit()}


def in_blocks(product: Callable[[Tensor], Tensor], block: Tensor, bytes_per_vector: int) -> Tensor:
    """The product of a block of vectors (B, n, k), as many at a time as fit."""
    count = block.shape[2]
    size = min(count, LARGEST_BLOCK)
    fits = ALWAYS_FITS.get(block.device.type, ALWAYS_FITS["cpu"])
    if size * bytes_per_vector > min(fits, (smallest_limit() or LARGEST_LIMIT) // 16):
        size = max(1, min(size, int(SHARE_OF_FREE_MEMORY * free_bytes(block.device) / bytes_per_vector)))
    results: list[Tensor] = []
    start = 0
    while start < count:
        try:
            results.append(product(block[:, :, start : start + size]))
            start += size
        except RuntimeError as error:
            if size == 1 or not out_of_memory(error):
                raise
            size = max(1, size // 2)
            if block.device.type == "cuda":
                torch.cuda.empty_cache()
    return results[0] if len(results) == 1 else torch.cat(results, 2)
