"""Randomness that belongs to an epoch and not to a run.

All that is random in an epoch is seeded from the run's seed and the epoch's number. So a run that was stopped goes on
with the same numbers as one that was not, and there is no state of a generator to save.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from skipscope.numerics import seed_of

__all__ = ["same_kernels_each_time", "seed_of", "seeded"]


@contextmanager
def seeded(device: torch.device, seed: int, rank: int = 0) -> Iterator[None]:
    """torch's own generators, of the CPU and of one GPU, seeded inside and as they were outside.

    The CPU's is the same in every process, the GPU's is not: choices that the host makes for a whole batch (stochastic
    depth) are then the same everywhere, and dropout on different samples is not.
    """
    cuda = [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(cuda):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU of the machine
        for index in cuda:
            torch.cuda.default_generators[index].manual_seed(seed_of(seed, rank) if rank else seed)
        yield


@contextmanager
def same_kernels_each_time() -> Iterator[None]:
    """Otherwise a resumed run on a GPU ends with other numbers: cuDNN may choose kernels that add up in any order."""
    flags = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags
