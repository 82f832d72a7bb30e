"""How far a measurement is: `progress=` of every function is called with what is done and what there is in all.

With `progress=True` a bar is drawn on standard error while the function runs, where that is a terminal or a notebook.

Work of several parts, of which each has a name and steps of its own, is announced to the command line part by part.
`Parts` makes one count of it.
"""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Progress = Callable[[int, int], None]  # done, total
Announce = Callable[[str, int, int], None]  # the part that is at work, how much of it is done, how much there is
Asked = Progress | bool | None  # as a user gives it
STEPS = 100  # that every part counts for


def with_progress(function: Function) -> Function:
    """Lets `progress=` of a function be True, or False for None; inside the function `called` gives what to call."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        if not isinstance(options.get("progress"), bool):
            return function(*args, **options)
        bar = Bar(function.__name__) if options["progress"] else None
        try:
            return function(*args, **{**options, "progress": bar})
        finally:
            if bar is not None:
                bar.stop()

    return run  # type: ignore[return-value]


def called(progress: Asked) -> Progress | None:
    """Inside a function that is decorated `with_progress`."""
    return None if isinstance(progress, bool) else progress


class Bar:
    """How far a function is, with the time left; gone when it ends."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bars

        console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not (console.is_terminal or console.is_jupyter),
        )
        self._task = self._bars.add_task(what, total=None, left="")
        self._began: tuple[float, int] | None = None  # when it was called first, and how much was done
        self._bars.start()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        start, first = self._began = self._began or (now, done)
        left = (now - start) / (done - first) * (total - done) if done > first else None
        words = "" if left is None else f"{int(left // 60)}:{int(left % 60):02} left"
        self._bars.update(self._task, completed=done, total=total, left=words)

    def stop(self) -> None:
        self._bars.stop()


class Parts:
    """Announcements of `count` parts, one after another, as one count; parts may be left out."""

    def __init__(self, progress: Progress, count: int) -> None:
        self._progress, self._count = progress, count
        self._seen: list[str] = []
        self._done = 0

    def __call__(self, part: str, done: int, total: int) -> None:
        if part not in self._seen:
            self._seen.append(part)
        place = min(self._seen.index(part), self._count - 1)
        self._report(STEPS * place + STEPS * min(done, total) // max(total, 1))

    def finish(self) -> None:
        self._report(STEPS * self._count)

    def _report(self, done: int) -> None:
        self._done = max(done, self._done)
        self._progress(self._done, STEPS * self._count)


def announced(function: str, progress: Progress | None, count: int) -> tuple[Announce, Callable[[], None]]:
    """What work of `count` parts calls, and what it calls at its end. function: whose `progress=` it is."""
    if progress is None:
        return (lambda part, done, total: None), lambda: None
    if _takes_three(progress):
        warnings.warn(
            f"{function}: progress= is now called with two numbers, done and total; functions of (part, done, total) "
            "work until the next release",
            FutureWarning,
            stacklevel=3,
        )
        return progress, lambda: None  # type: ignore[return-value]
    parts = Parts(progress, count)
    return parts, parts.finish


def _takes_three(progress: Callable[..., object]) -> bool:
    try:
        signature = inspect.signature(progress)
    except (TypeError, ValueError):  # some built-in functions have none
        return False
    try:
        signature.bind(1, 2)
    except TypeError:
        try:
            signature.bind("", 1, 2)
        except TypeError:
            return False
        return True
    return False
