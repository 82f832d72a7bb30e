"""One task after another, in this process."""

from __future__ import annotations

from collections import deque

from skipscope.runs.executors.engine import Engine
from skipscope.runs.executors.task import Done, Failed, Outcome, Task


class Here(Engine):
    capacity = 1

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._waiting: deque[tuple[int, Task]] = deque()

    def start(self, number: int, task: Task) -> None:
        self._waiting.append((number, task))

    def ended(self) -> list[tuple[int, Outcome]]:
        number, task = self._waiting.popleft()
        try:
            return [(number, Done(task.perform(self._threads)))]
        except Exception as error:
            return [(number, Failed(error))]

    def stop(self) -> None:
        self._waiting.clear()
