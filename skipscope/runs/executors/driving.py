"""Tasks through an engine: as many at a time as it takes, results as they come, lost ones once more.

An error that a task raises is its result: the same task would raise it again. A task whose worker was lost is started
again, a stated number of times. Whoever stops listening, by an error or by Ctrl-C, ends the tasks that are under way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from skipscope.errors import SkipscopeError
from skipscope.runs.executors.engine import Engine
from skipscope.runs.executors.execution import Execution
from skipscope.runs.executors.task import Done, Failed, Lost, Task

Keep = Callable[[Task, Any], None]  # called with a task that is done and its result, in the driver


@dataclass(frozen=True)
class Finished:
    """A task that is done or has failed."""

    task: Task
    value: Any = None
    error: Exception | None = None
    lost: tuple[str, ...] = ()  # why it was started again, each time


def performed(tasks: Iterable[Task], execution: Execution, engine: Engine | None = None) -> Iterator[Finished]:
    """In the order in which they end. Tasks are taken from the iterable when there is room for them.

    engine: that of the execution, where it was made before, to see that it can be.

    To be closed where it is not read to its end (`contextlib.closing`); `perform_all` does.
    """
    coming = iter(tasks)
    first = next(coming, None)
    if first is None:
        return
    coming = chain([first], coming)
    under_way: dict[int, tuple[Task, tuple[str, ...]]] = {}
    number = 0
    with engine or execution.engine() as engine:
        while True:
            while len(under_way) < engine.capacity and (task := next(coming, None)) is not None:
                under_way[number] = task, ()
                engine.start(number, task)
                number += 1
            if not under_way:
                return
            for ended, outcome in engine.ended():
                task, lost = under_way.pop(ended)
                if isinstance(outcome, Lost):
                    lost = (*lost, outcome.reason)
                    if len(lost) <= execution.retries:
                        under_way[number] = task, lost
                        engine.start(number, task)
                        number += 1
                        continue
                    yield Finished(task, error=_given_up(task, lost, outcome.of_memory), lost=lost)
                elif isinstance(outcome, Failed):
                    yield Finished(task, error=outcome.error, lost=lost)
                elif isinstance(outcome, Done):
                    yield Finished(task, outcome.value, lost=lost)


def perform_all(
    tasks: Iterable[Task],
    execution: Execution,
    keep: Keep,
    failed: Callable[[Task, Exception], None] | None = None,
    note: Callable[[str], None] | None = None,
    engine: Engine | None = None,
) -> None:
    """keep: called with every result as it comes. failed: called with a task's error, which is raised otherwise.

    note: called with a sentence on every task whose worker was lost. engine: as for `performed`.
    """
    with contextlib.closing(performed(tasks, execution, engine)) as results:  # type: ignore[type-var]
        for finished in results:
            if finished.lost and note is not None:
                note(f"{finished.task.name} was computed again: {'; '.join(finished.lost)}")
            if finished.error is None:
                keep(finished.task, finished.value)
            elif failed is None:
                raise finished.error
            else:
                failed(finished.task, finished.error)


def _given_up(task: Task, lost: tuple[str, ...], of_memory: bool) -> SkipscopeError:
    times = "once" if len(lost) == 1 else f"{len(lost)} times"
    advice = (
        "a lack of memory is the usual cause: take fewer workers at a time, or a smaller model"
        if of_memory
        else "see what the worker wrote to standard error, or try the executor 'here'"
    )
    return SkipscopeError(f"{task.name}: its worker was lost {times} ({lost[-1]}); {advice}")
