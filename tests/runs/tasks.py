"""Tasks for the tests of executors: functions that a worker can import."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import torch
import xarray

from skipscope.errors import InputError
from skipscope.runs.executors import Task
from skipscope.runs.files import key_of


def task(function: Any, **arguments: Any) -> Task:
    return Task(f"{function.__name__} {arguments}", function, arguments, key_of({"f": function.__name__, **arguments}))


def spectrum_of(size: int) -> xarray.Dataset:
    """Of a matrix that is drawn from the seed that the task has; decompositions show threads and seeds in last bits."""
    matrix = torch.randn(size, size)
    values = torch.linalg.svdvals(matrix @ matrix.mT)
    sums = torch.randn(300_000).sum()
    return xarray.Dataset(
        {"value": ("index", values.numpy()), "sum": numpy.float32(sums), "threads": torch.get_num_threads()}
    )


def refuse(number: int) -> None:
    raise InputError(f"number {number} is refused")


def fail() -> None:
    raise ZeroDivisionError("a bug")


def lose(marks: str, times: int) -> str:
    """Kills its own process, as often as said; every attempt leaves a mark."""
    folder = Path(marks)
    number = len(list(folder.iterdir()))
    (folder / f"attempt-{number}").touch()
    if number < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"attempt {number}"


def sleep(seconds: float, mark: str = "") -> float:
    if mark:
        Path(mark).write_text(str(os.getpid()))
    time.sleep(seconds)
    return seconds


def slow_spectrum_of(size: int, seconds: float, mark: str) -> xarray.Dataset:
    sleep(seconds, mark)
    return spectrum_of(size)


def leave() -> None:
    sys.exit(3)


def draw() -> tuple[float, float, str]:
    return float(numpy.random.rand()), random.random(), str(torch.rand(1).dtype)


def die_with_a_child() -> None:
    """The child lives on for a while, with all that this process has open."""
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGTERM)
