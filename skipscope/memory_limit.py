"""How much memory may be taken: `memory=` of every measurement, and of a model that is read from disk.

A size is the most that may be added to what the process (on a GPU, the device) held when the limit was set. It bounds
what is planned: block sizes, and the choice between dense matrices and products, are computed from what is free, and of
that no more counts as free than is left of the limit (`skipscope.linear.memory.free_bytes`). It also bounds how many
converted weights are kept (`skipscope.trace.read_weights`). Pages of mapped files do not count: the system takes them
back whenever it needs them.

A limit holds while `limited_memory` is open in a thread, or as long as the object lives that it was set for, a model
that was opened with `memory=`. Where several hold, the one that leaves least counts.

With the first limit, large tensors get pages of their own from the C library, which go back to the system when they are
freed. By default it would take those of up to 32 MB from one heap, in which what is kept lies between what is freed: a
model of 400 MB whose weights were converted one by one, 6 MB each, left 450 MB behind it.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from skipscope.errors import InputError

if TYPE_CHECKING:
    import torch

Memory = int | str  # bytes, or a size in words such as "8GB"
Function = TypeVar("Function", bound=Callable[..., Any])
UNITS = {"": 1, "B": 1} | {
    f"{letter}{ending}": base ** (power + 1)
    for power, letter in enumerate("KMGT")
    for ending, base in (("", 1000), ("B", 1000), ("IB", 1024))
}
SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")
LEAST = 2**20  # bytes: no network is measured in less
OWN_PAGES = 2**17  # bytes from which on a tensor gets pages of its own: the C library's own first value, kept
M_MMAP_THRESHOLD = -3  # of malloc.h
ALWAYS_LEFT = 1 / 16  # of a limit: plans go on with small blocks where freed memory was not given back to the system


def bytes_in(memory: Memory) -> int:
    """A size as a user gives it: a number of bytes, or "500MB", "8GB", "1.5GiB"."""
    size: float | None = None
    if isinstance(memory, int) and not isinstance(memory, bool):
        size = memory
    elif isinstance(memory, str) and (found := SIZE.fullmatch(memory)) and found[2].upper() in UNITS:
        size = float(found[1]) * UNITS[found[2].upper()]
    if size is None:
        raise InputError(f"memory={memory!r}: expected a size such as '8GB', '500MB' or a number of bytes")
    if size < LEAST:
        raise InputError(f"memory={memory!r}: expected 1 MiB or more; sizes are in bytes unless they have a unit")
    return int(size)


class Limit:
    """So many bytes above what is held when the limit is made."""

    def __init__(self, memory: Memory) -> None:
        self.bytes = bytes_in(memory)
        _give_freed_memory_back()
        self._before: dict[str, int] = {"cpu": _held("cpu")}

    def left(self, device: torch.device) -> int:
        name = str(device)
        if name not in self._before:
            self._before[name] = 0  # whatever was put on another device since
        left = self.bytes - max(_held(name) - self._before[name], 0)
        return max(left, int(ALWAYS_LEFT * self.bytes))


class _Thread(threading.local):
    limits: tuple[Limit, ...] = ()


_thread = _Thread()
_standing: weakref.WeakKeyDictionary[Any, Limit] = weakref.WeakKeyDictionary()  # by what they were set for


@contextmanager
def limited_memory(memory: Memory | None) -> Iterator[None]:
    """What is planned inside takes no more than this; with None it changes nothing."""
    if memory is None:
        yield
        return
    before = _thread.limits
    _thread.limits = (*before, Limit(memory))
    try:
        yield
    finally:
        _thread.limits = before


def limit_while_alive(holder: Any, memory: Memory) -> None:
    """As long as the holder lives, all that this process plans takes no more than this."""
    _standing[holder] = Limit(memory)


def left_of_limits(device: torch.device) -> int | None:
    """None where no limit holds."""
    return min((limit.left(device) for limit in _limits()), default=None)


def smallest_limit() -> int | None:
    return min((limit.bytes for limit in _limits()), default=None)


def with_memory(function: Function) -> Function:
    """Lets a function have `memory=`: the limit holds while it runs."""

    @functools.wraps(function)
    def run(*args: Any, memory: Memory | None = None, **options: Any) -> Any:
        with limited_memory(memory):
            return function(*args, **options)

    return run  # type: ignore[return-value]


def _limits() -> list[Limit]:
    return [*_thread.limits, *_standing.values()]


@functools.cache
def _give_freed_memory_back() -> None:
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, OWN_PAGES)
    except (AttributeError, OSError, TypeError):  # another C library, which does as it does
        return


def _held(device: str) -> int:
    """Bytes that are held now; on the CPU without the pages of files, 0 where the system does not say."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.memory_allocated(torch.device(device))
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 0 if found is None else int(found[1]) * 1024
