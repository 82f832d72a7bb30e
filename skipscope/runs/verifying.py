"""Every file of a run folder, compared with what the run wrote and read once as what it should be.

A hash says whether a file is as it was written. Reading it says more where there is no hash to trust: a record that
somebody wrote by hand, with hashes of files that no reader takes. Nothing is written, and nothing outside of the folder
is opened.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skipscope.errors import InputError, first_line
from skipscope.runs.datasets import dataset_in
from skipscope.runs.lock import Lock
from skipscope.runs.record import NAME, inside, read_record
from skipscope.runs.saved import CLAIMS, read_claims
from skipscope.runs.whole_files import HALF_WRITTEN, reason_of

State = Literal["as written", "unknown", "not of the run", "changed", "missing", "unreadable"]
GOOD: tuple[State, ...] = ("as written", "unknown", "not of the run")
TRAINING = ".training.safetensors"


@dataclass(frozen=True)
class Verified:
    """One file. unknown: there is nothing to compare it with, and it can be read."""

    name: str
    state: State
    size: int | None = None  # bytes
    about: str = ""

    @property
    def good(self) -> bool:
        return self.state in GOOD

    def to_dict(self) -> dict[str, Any]:
        return {"file": self.name, "state": self.state, "bytes": self.size, "about": self.about}


@dataclass(frozen=True)
class VerifiedRun:
    path: Path
    what: str  # empty where run.json cannot be read
    status: str
    files: tuple[Verified, ...]

    @property
    def bad(self) -> tuple[Verified, ...]:
        return tuple(file for file in self.files if not file.good)

    def to_dict(self) -> dict[str, Any]:
        files = [file.to_dict() for file in self.files]
        return {"run": str(self.path), "what": self.what, "status": self.status, "good": not self.bad, "files": files}


def verify_run(path: Path | str) -> VerifiedRun:
    """InputError where the folder holds no run at all."""
    path = Path(path)
    if not os.path.lexists(path / NAME):
        read_record(path)  # says what is there instead
    try:
        record, seal = read_record(path)
    except InputError as error:
        return VerifiedRun(path, "", "", (Verified(NAME, "unreadable", _size(path / NAME), str(error)),))
    first = {
        "whole": Verified(NAME, "as written", _size(path / NAME)),
        "changed": Verified(NAME, "changed", _size(path / NAME), "its SHA-256 is not the one in it"),
        "missing": Verified(NAME, "unknown", _size(path / NAME), "an older version wrote it, without a SHA-256"),
    }[seal]
    listed = [_listed(path, name, expected) for name, expected in record["hashes"].items()]
    others = list(_others(path, record["hashes"]))
    return VerifiedRun(path, record["what"], record["status"], (first, *listed, *others))


def _listed(folder: Path, name: str, expected: str) -> Verified:
    file = folder / name
    if not inside(folder, name):
        return Verified(name, "unreadable", None, "the name leads out of the folder")
    if not file.is_file():
        return Verified(name, "missing")
    try:
        content = file.read_bytes()
    except OSError as error:
        return Verified(name, "unreadable", _size(file), reason_of(error))
    if not expected:
        return Verified(name, "changed", len(content), "the run was stopped while it replaced this file")
    if hashlib.sha256(content).hexdigest() != expected:
        return Verified(name, "changed", len(content), f"its SHA-256 is not the one in {NAME}")
    wrong = _unreadable(file, name, content)
    return Verified(name, "unreadable" if wrong else "as written", len(content), wrong)


def _unreadable(file: Path, name: str, content: bytes) -> str:
    """What is wrong with the content of a file; nothing where it can be read as what its name says."""
    try:
        if name == CLAIMS:
            read_claims(file)
        elif name.endswith(".json"):
            json.loads(content)
        elif name.endswith(".nc"):
            dataset_in(content, file)
        elif name.endswith(".safetensors"):
            from skipscope.sealed import read_tensors

            read_tensors(file)
    except (InputError, OSError, ValueError, RecursionError) as error:
        return first_line(error)
    return ""


def _others(folder: Path, hashes: dict[str, str]) -> Iterator[Verified]:
    """Files that are not in the record: left by a kill, or put there by somebody."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            file = Path(place, name)
            own = file.relative_to(folder).as_posix()
            if own in hashes or own in (NAME, Lock.NAME):
                continue
            if file.is_symlink():
                yield Verified(own, "not of the run", None, "a link")
            elif HALF_WRITTEN.fullmatch(name):
                yield Verified(
                    own, "not of the run", _size(file), "half written; the next run in the folder removes it"
                )
            elif own.endswith(TRAINING):
                yield _training(file, own)
            else:
                yield Verified(own, "not of the run", _size(file))


def _training(file: Path, own: str) -> Verified:
    wrong = _unreadable(file, own, b"")
    about = wrong or "the state of a training that is not done"
    return Verified(own, "unreadable" if wrong else "as written", _size(file), about)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except (OSError, ValueError):
        return None
