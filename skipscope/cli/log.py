"""How far long work is where there is no terminal to draw on: a line every 30 seconds, and nothing in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

EVERY = 30.0  # seconds


class Log:
    """Called like `skipscope.cli.display.Display`; a thread of its own writes the lines, since work that cannot be
    counted does not call."""

    def __init__(self, say: Callable[[str], None], every: float | None = None) -> None:
        self._say, self._every = say, EVERY if every is None else every
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._at_work: dict[str, tuple[int, int] | None] = {}  # what, and how much of it is done and there is
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="skipscope-log", daemon=True)
        self._thread.start()

    def update(self, what: str, done: int, total: int) -> None:
        with self._lock:
            self._at_work[what] = (done, total)
            if done >= total:
                del self._at_work[what]

    def begin(self, what: str) -> None:
        with self._lock:
            self._at_work[what] = None

    def end(self, what: str) -> None:
        with self._lock:
            self._at_work.pop(what, None)

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def line(self) -> str:
        """measuring, about 5m: all singular values, 12 of 56, 2 min"""
        with self._lock:
            at_work = dict(self._at_work)
        parts = [what if count is None else f"{what}, {count[0]} of {count[1]}" for what, count in at_work.items()]
        return f"{': '.join(parts) or 'working'}, {_in_words(time.monotonic() - self._began)}"

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._say(self.line())


def _in_words(seconds: float) -> str:
    minutes = int(seconds // 60)
    if not minutes:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
