"""How a command ends that is stopped from outside: by Ctrl-C, by SIGTERM, by a lack of memory.

Clusters announce the end of a job with SIGTERM some seconds before they kill it. It becomes an exception where Ctrl-C
becomes one, so that whatever keeps results then keeps them now: a training writes its last checkpoint, a run folder its
status. The exception is raised once; what is sent again while files are written is ignored. Handlers are installed by
the command line and nowhere else, and only in place of the system's own: a program that uses skipscope as a library has
its own idea of signals.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from skipscope.errors import SkipscopeError, Terminated, first_line

REMEDY = "take fewer samples, smaller inputs or a smaller model"
GIB = 2**30


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Around a command: SIGTERM raises Terminated."""
    if not _may_install(signal.SIGTERM, signal.SIG_DFL):
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def not_now() -> Iterator[None]:
    """Around imports of torch, which takes an exception in the middle of them for a broken numpy: a signal counts when
    they are done."""
    came: list[int] = []
    former: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            former[number] = handler
            signal.signal(number, lambda sent, _: came.append(sent))
    try:
        yield
    finally:
        for held, handler in former.items():
            signal.signal(held, handler)
    if came:
        former[came[0]](came[0], None)


def _may_install(number: int, default: Any) -> bool:
    """Python takes handlers in the main thread only."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(number) is default


def lack_of_memory(error: BaseException) -> SkipscopeError:
    """The message, with what was asked for, what the process had and what is free."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    numbers = ", ".join(filter(None, [_largest_size(), _free()]))
    remedy = f"{notes} with more memory, or {REMEDY}" if notes else REMEDY
    return SkipscopeError(f"out of memory: {first_line(error)} ({numbers}); {remedy}")


def _largest_size() -> str:
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    allowed = "" if limit == resource.RLIM_INFINITY else f" of {limit / GIB:.1f} GiB of address space allowed"
    return f"this process had up to {size / GIB:.1f} GiB{allowed}"


def _free() -> str:
    if "torch" not in sys.modules:
        return ""
    import torch

    from skipscope.linear.memory import known_free_bytes

    free = known_free_bytes(torch.device("cpu"))
    return "" if free is None else f"{free / GIB:.1f} GiB are free on this machine now"
