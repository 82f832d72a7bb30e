"""What all engines have in common: the few things that the driver asks of them."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from skipscope.runs.executors.task import Outcome, Task


def import_path() -> str:
    """PYTHONPATH for a worker: it finds modules where this process finds them, and nowhere before that."""
    return os.pathsep.join(place or os.getcwd() for place in sys.path)  # noqa: PTH109


class Engine(ABC):
    """Used as a context: leaving it, for whatever reason, ends the tasks that are under way."""

    capacity: int  # tasks that may be under way at a time

    @abstractmethod
    def start(self, number: int, task: Task) -> None:
        """Begin a task. number: by which its end is reported; a task that is started again has a new one."""

    @abstractmethod
    def ended(self) -> list[tuple[int, Outcome]]:
        """Wait until a task has ended; those that have, by their numbers."""

    @abstractmethod
    def stop(self) -> None:
        """End everything that is under way."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()
