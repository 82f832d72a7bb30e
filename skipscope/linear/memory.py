"""How many vectors a product may hold at once: planned from free memory, halved when that was too many."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor

LARGEST_BLOCK = 1024  # more vectors at once gain nothing on any device
SHARE = 0.4  # of the free memory that one product may take


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not known on this system: a cautious guess
        return 2 << 30


def in_blocks(product: Callable[[Tensor], Tensor], block: Tensor, bytes_per_vector: int) -> Tensor:
    """The product of a block of vectors (B, n, k), as many at a time as fit."""
    count = block.shape[2]
    planned = int(SHARE * free_bytes(block.device) / max(bytes_per_vector, 1))
    size = max(1, min(count, planned, LARGEST_BLOCK))
    results: list[Tensor] = []
    start = 0
    while start < count:
        try:
            results.append(product(block[:, :, start : start + size]))
            start += size
        except RuntimeError as error:
            if size == 1 or not _out_of_memory(error):
                raise
            size = max(1, size // 2)
            if block.device.type == "cuda":
                torch.cuda.empty_cache()
    return results[0] if len(results) == 1 else torch.cat(results, 2)


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
