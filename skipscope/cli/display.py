"""Bars and spinners on a terminal. Imported only where there is one: the library behind it takes its time."""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
)
from rich.text import Text

from skipscope.visible import visible


class TimeLeft(ProgressColumn):
    """From the pace since the beginning. Pieces of work last from milliseconds to minutes here, and a pace of the last
    seconds would often be none at all."""

    def render(self, task: Task) -> Text:
        done = task.completed - task.fields.get("first", 0)
        if task.total is None or done <= 0:
            return Text(_clock(task.elapsed or 0.0), style="progress.elapsed")
        began, reported = task.fields["began"], task.fields["reported"]
        left = (reported - began) / done * (task.total - task.completed) - (time.monotonic() - reported)
        return Text(f"{_clock(max(left, 0.0))} left", style="progress.remaining")


class Bar(BarColumn):
    """Nothing for work that cannot be counted: its spinner is enough."""

    def render(self, task: Task) -> Text:  # type: ignore[override]
        return Text("") if task.total is None else super().render(task)  # type: ignore[return-value]


class Display:
    """What is being done now; what is done vanishes."""

    def __init__(self, stream: TextIO) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            Bar(),
            TaskProgressColumn(),
            TimeLeft(),
        )
        self._bars = Progress(*columns, console=Console(file=stream), transient=True)
        self._tasks: dict[str, TaskID] = {}
        self._bars.start()

    def update(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(visible(what), total=total, first=done, began=time.monotonic())
        self._bars.update(self._tasks[what], completed=done, total=total, reported=time.monotonic())
        if done >= total:
            self.end(what)

    def begin(self, what: str) -> None:
        self._tasks[what] = self._bars.add_task(visible(what), total=None)

    def end(self, what: str) -> None:
        self._bars.remove_task(self._tasks.pop(what))

    def stop(self) -> None:
        self._bars.stop()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
