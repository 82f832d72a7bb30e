"""How many threads of the CPU: one for operations on few numbers.

A second thread saves them nothing and makes them wait: a step of a fully connected network of 60 layers of width 64
takes a quarter longer with two threads on an idle machine, and many times as long on a busy one. With one, the numbers
do not depend on the count of cores either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

WORTH_THREADS = 2**20  # numbers, or multiplications of a layer


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    threads = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def little_work(model: nn.Module, batch: int) -> bool:
    """Whether layers of a network of matrices alone have little to do on average. Convolutions are worth threads."""
    weights = [weight for weight in model.parameters() if weight.dim() >= 2]
    convolutions = any(weight.dim() > 2 for weight in weights)
    multiplications = batch * sum(weight.numel() for weight in weights)
    return bool(weights) and not convolutions and multiplications < len(weights) * WORTH_THREADS
