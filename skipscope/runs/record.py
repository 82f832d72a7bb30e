"""run.json, as it is written and read again, and how it differs from what is asked for now.

What every reader relies on is there and of its kind, or the file is refused. It holds a digest of itself.
"""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.runs.files import as_json, digest
from skipscope.runs.lock import Lock
from skipscope.runs.whole_files import HALF_WRITTEN, write_whole
from skipscope.sealed import BLANK, KEY, Seal, seal, seal_of

NAME = "run.json"
SCHEMA = 1  # of run.json; without a number, as version 0.1 wrote it, 1 is meant
PACKAGE = __name__.partition(".")[0]
LIBRARIES = ("torch", "numpy", "xarray")
UNMIXED = (PACKAGE, "torch")  # versions that all parts of a run share

REQUIRED: dict[str, type] = {"what": str, "status": str, "parameters": dict, "hashes": dict}
OPTIONAL: dict[str, type] = {"versions": dict, "notes": list, "resumed": list, "left_out": dict, "inputs": dict}
# Where it says nothing.
UNKNOWN: dict[str, Any] = {"preset": "", "seed": None, "device": "cpu", "start": "", "end": None}
_KINDS: dict[type, str] = {str: "a text", dict: "a mapping", list: "a list"}


def write_record(folder: Path, record: Mapping[str, Any], state: Seal = "whole") -> None:
    """state: of the record that this one is made from. What was changed by hand, or had no digest, stays so."""
    written = record if state == "missing" else {**record, KEY: BLANK}
    content = (as_json(written) + "\n").encode()
    write_whole(folder / NAME, seal(content) if state == "whole" else content)


def left_nothing(folder: Path, record: Mapping[str, Any]) -> bool:
    """Did this run fail before it wrote anything? Then nothing is lost with it."""
    if record["status"] != "failed" or record["hashes"]:
        return False
    files = [place.name for place in folder.rglob("*") if not place.is_dir()]
    return all(name in (NAME, Lock.NAME) or HALF_WRITTEN.fullmatch(name) for name in files)


def read_record(folder: Path) -> tuple[dict[str, Any], Seal]:
    """The record without the digest of itself, and whether that fits."""
    file = folder / NAME
    content = _content(file)
    record = _parsed(file, content)
    if not isinstance(record, dict):
        raise InputError(f"{file} is no record of a run: expected a mapping, got {kind(record)}")
    require_schema(file, record.get("schema", 1), SCHEMA)
    for name, expected in (REQUIRED | OPTIONAL).items():
        if name not in record and name in REQUIRED:
            raise InputError(f"{file} is no record of a run: it has no '{name}'")
        if name in record and not isinstance(record[name], expected):
            raise InputError(
                f"{file} is no record of a run: expected '{name}' to be {_KINDS[expected]}, got {kind(record[name])}"
            )
    for name in ("hashes", "notes"):
        entries = record.get(name, [])
        odd = [
            entry
            for entry in (entries.values() if isinstance(entries, Mapping) else entries)
            if not isinstance(entry, str)
        ]
        if odd:
            raise InputError(f"{file} is no record of a run: expected texts in '{name}', got {kind(odd[0])}")
    missing = {name: value for name, value in {**UNKNOWN, "versions": {}}.items() if name not in record}
    record.pop(KEY, None)
    return {**record, **missing}, seal_of(content)


def require_schema(file: Path, found: Any, known: int) -> None:
    """Refuse a file of a later version, which may mean something else by the same keys."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise InputError(f"{file}: expected a whole number from 1 on as its schema, got {kind(found)}; it is damaged")
    if found > known:
        raise InputError(
            f"{file} was written by a later version of {PACKAGE}: it has schema {found}, and this version reads up to "
            f"{known}; install the later version to read it"
        )


def is_changed(folder: Path, name: str, hashes: Mapping[str, str]) -> bool:
    """Whether a file is there and is not what its hash says; one without a hash was perhaps left by a kill."""
    path = folder / name
    return bool(hashes.get(name)) and inside(folder, name) and path.is_file() and digest(path) != hashes[name]


def read_json(file: Path) -> Any:
    """A document of a run folder."""
    return _parsed(file, _content(file))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        folder = file.parent
        why = (
            f"it has no {file.name}" if folder.is_dir() else "it is a file" if folder.exists() else "it does not exist"
        )
        raise InputError(f"{folder} is no run folder: {why}; expected a folder that skipscope wrote") from error
    except OSError as error:
        raise _unreadable(file, error) from error


def _parsed(file: Path, content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> InputError:
    return InputError(f"{file} cannot be read: {error}; it is damaged, so run the command again")


def kind(value: Any) -> str:
    """What a value of a JSON document is, in words."""
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return _KINDS[type(value)]


def inside(folder: Path, name: str) -> bool:
    """Whether a name in a record is that of a file of this folder; nobody reads or removes others by it."""
    try:
        place = (folder / name).resolve()
        place.is_file()  # raises where no file system takes the name
        return folder.resolve() in place.parents
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
        return False


def versions() -> dict[str, str]:
    found = {name: str(importlib.import_module(name).__version__) for name in (PACKAGE, *LIBRARIES)}
    return {**found, "python": platform.python_version()}


def differences_of(found: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Why a run with the record `found` cannot go on as `asked`, in words; nothing where it can."""
    differences = [
        f"{key} was {_short(old)} and is now {_short(new)}"
        for key, old, new in _leaves({key: found.get(key) for key in asked}, asked)
        if old != new
    ]
    before, now = found["versions"], versions()
    return differences + [
        f"{name} was {before.get(name)} and is now {now[name]} (parts of different versions are not mixed)"
        for name in UNMIXED
        if before.get(name) != now[name]
    ]


def _leaves(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place of two nested mappings, with what the one and the other hold there."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _leaves(old.get(key), new.get(key), key if name in ("", "parameters") else f"{name}.{key}")
    else:
        yield name, old, new


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
