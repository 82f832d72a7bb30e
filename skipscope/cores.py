"""The cores of the CPU: how many threads torch uses, and independent pieces of work on all cores at once.

A second thread saves operations on few numbers nothing, and makes them wait. LAPACK's decompositions of middle-sized
matrices hardly gain from it either: of many matrices each core takes its own, and what one core finds alone does not
depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")
FEW_NUMBERS = 1 << 17  # in the tensors of a computation, up to which a second thread saves it nothing


@contextmanager
def threads_of(count: int) -> Iterator[None]:
    """So many threads of the CPU; a thread of Python that is started inside begins with that number."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    with threads_of(1 if wanted else torch.get_num_threads()):
        yield


def threads_for(numbers: int, device: torch.device) -> AbstractContextManager[None]:
    """One thread for operations on few numbers: on a machine that is busy with other work each of them would wait for
    its second thread, and takes several times as long."""
    return one_thread(device.type == "cpu" and numbers <= FEW_NUMBERS)


def on_all_cores(compute: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results in the order of the items; as many at a time as torch has threads, each with one thread."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield from map(compute, items)
        return
    with one_thread(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield from pool.map(compute, items)
        finally:
            pool.shutdown(cancel_futures=True)
