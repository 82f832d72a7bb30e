"""What surrounds a training or a measurement and is given back as it was found: modes, generators, kernels.

Randomness belongs to an epoch and not to a run: all that is random in an epoch is seeded from the run's seed and the
epoch's number. So a run that was stopped goes on with the same numbers as one that was not, and there is no state of a
generator to save.

One thread of the CPU is enough for operations on few numbers. A second one saves them nothing and makes them wait: a
step of a fully connected network of 60 layers of width 64 takes a quarter longer with two threads on an idle machine,
and many times as long on a busy one. With one, the numbers do not depend on the count of cores either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from skipscope.numerics import seed_of

WORTH_THREADS = 2**20  # numbers, or multiplications of a layer


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Afterwards each module has the mode that it had: a user may have set some of them separately."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


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


@contextmanager
def laid_out(model: nn.Module, channels_last: bool = True) -> Iterator[torch.memory_format]:
    """The memory format of images and, inside, of 4-d weights. A GPU's convolutions work on channels last."""
    if not channels_last or next(model.parameters()).device.type != "cuda":
        yield torch.contiguous_format
        return
    weights = [weight for weight in model.parameters() if weight.dim() == 4 and weight.is_contiguous()]
    for weight in weights:
        weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    try:
        yield torch.channels_last
    finally:
        for weight in weights:
            weight.data = weight.data.contiguous()


def little_work(model: nn.Module, batch: int) -> bool:
    """Whether layers of a network of matrices alone have little to do on average. Convolutions are worth threads."""
    weights = [weight for weight in model.parameters() if weight.dim() >= 2]
    convolutions = any(weight.dim() > 2 for weight in weights)
    multiplications = batch * sum(weight.numel() for weight in weights)
    return bool(weights) and not convolutions and multiplications < len(weights) * WORTH_THREADS
