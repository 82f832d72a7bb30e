"""Faults of a disk, at the n-th file operation of a small run: kills, a full disk, an error of input and output.

The runs layer goes through six functions of `os` when it changes a folder. While `Faults` is entered, calls of them
that concern the folder are counted, and one of them goes wrong: a kill ends the process on the spot, in the middle of
what it wrote; an error is raised in place of the call, and in place of all later ones that need room where the disk is
full.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy
import pytest
import xarray

from skipscope.data import digits
from skipscope.runs import RunFolder
from skipscope.training import Settings
from skipscope.training.networks import Network, trained

Fault = Literal["kill", "full disk", "broken disk"]
FAULTS: tuple[Fault, ...] = ("kill", "full disk", "broken disk")
KILLED = 99  # exit code
CHANGING = ("open", "write", "fsync", "replace", "mkdir", "unlink")
NEED_ROOM = ("open", "write", "fsync", "mkdir")
NEW = os.O_CREAT


class Faults:
    """fault: None only counts. at: the number of the operation, from 0."""

    def __init__(self, folder: Path, fault: Fault | None = None, at: int = -1) -> None:
        self.folder, self.fault, self.at = str(folder), fault, at
        self.operations: list[str] = []
        self._descriptors: set[int] = set()
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Faults:
        for name in CHANGING:
            self._patch.setattr(os, name, self._watched(name, getattr(os, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(first: Any, *rest: Any, **options: Any) -> Any:
            if not self._concerns(name, first, rest):
                return real(first, *rest, **options)
            number = len(self.operations)
            self.operations.append(name)
            if number == self.at and self.fault == "kill":
                if name == "write":
                    real(first, rest[0][: len(rest[0]) // 2])
                os._exit(KILLED)
            if number == self.at and self.fault == "broken disk":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.fault == "full disk" and number >= self.at and name in NEED_ROOM:
                if name == "write" and number == self.at:
                    return real(first, rest[0][:1])  # a byte had room
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            found = real(first, *rest, **options)
            if name == "open":
                self._descriptors.add(found)
            return found

        return called

    def _concerns(self, name: str, first: Any, rest: tuple[Any, ...]) -> bool:
        if name in ("write", "fsync"):
            return first in self._descriptors
        if name == "open" and not rest[0] & NEW:
            return False
        return os.fspath(first).startswith(self.folder)


def measured(value: float) -> xarray.Dataset:
    numbers = numpy.linspace(0.0, value, 50)
    return xarray.Dataset({"a": ("unit", numbers)}, {"unit": [f"u{k}" for k in range(50)]}, {"measure": "test"})


def small_run(folder: Path, training: bool = True) -> dict[str, Any]:
    """Two datasets that build on each other, a network that is trained with checkpoints, a list of claims and a page.

    Begins, or goes on with what is there. Gives everything that must be the same, whatever happened in between.
    """
    os.environ["SKIPSCOPE_CACHE"] = str(folder / "cache")
    with RunFolder(folder / "run", "a small run", parameters={"images": 3}, seed=5, former="resume") as run:
        first = run.part("first", lambda: measured(1.0))
        second = run.part("second", lambda: measured(float(first["a"].sum())))
        run.note("a note")
        weights: dict[str, Any] = {}
        if training:
            network = Network("resnet8-digits-n8", digits().subset(samples=64), Settings(epochs=2, batch=32), 0)
            weights = dict(trained(network, run, lambda done, total: None).model.state_dict())
        run.write_claims(())
        run.write_text("report.html", f"the sum is {float(second['a'].sum())}")
    return {
        "first": first,
        "second": second,
        "weights": {name: value.numpy().tobytes() for name, value in weights.items()},
        "files": sorted(run.record["hashes"]),
        "notes": run.record["notes"],
        "report": (folder / "run" / "report.html").read_text(),
    }


def same(one: dict[str, Any], other: dict[str, Any], but: str = "") -> bool:
    datasets = ("first", "second")
    return all(one[key].identical(other[key]) for key in datasets) and all(
        one[key] == other[key] for key in one if key not in (*datasets, but)
    )


def in_a_process_of_its_own(work: Callable[[], object]) -> int:
    """The exit code: KILLED where a fault killed it, 0 where the work was done, 1 where it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which this process does not use
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
