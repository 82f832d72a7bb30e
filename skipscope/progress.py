"""How far a measurement is: `progress=` of every function is called with what is done and what there is in all.

Work of several parts, of which each has a name and steps of its own, is announced to the command line part by part.
`Parts` makes one count of it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable

Progress = Callable[[int, int], None]  # done, total
Announce = Callable[[str, int, int], None]  # the part that is at work, how much of it is done, how much there is
STEPS = 100  # that every part counts for


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
