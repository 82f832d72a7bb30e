"""run.json, as it is written and read again.

What every reader relies on is there and of its kind, or the file is refused. It holds a digest of itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.runs.files import as_json, digest, write_whole
from skipscope.sealed import BLANK, KEY, Seal, seal, seal_of

NAME = "run.json"

REQUIRED: dict[str, type] = {"what": str, "status": str, "parameters": dict, "hashes": dict}
OPTIONAL: dict[str, type] = {"versions": dict, "notes": list, "resumed": list, "left_out": dict, "inputs": dict}
UNKNOWN: dict[str, Any] = {
    "preset": "",
    "seed": None,
    "device": "cpu",
    "start": "",
    "end": None,
}  # where it says nothing
_KINDS: dict[type, str] = {str: "a text", dict: "a mapping", list: "a list"}


def write_record(folder: Path, record: Mapping[str, Any], state: Seal = "whole") -> None:
    """state: of the record that this one is made from. What was changed by hand, or had no digest, stays so."""
    written = record if state == "missing" else {**record, KEY: BLANK}
    content = (as_json(written) + "\n").encode()
    content = seal(content) if state == "whole" else content
    write_whole(folder / NAME, lambda path: path.write_bytes(content))


def read_record(folder: Path) -> tuple[dict[str, Any], Seal]:
    """The record without the digest of itself, and whether that fits."""
    file = folder / NAME
    content = _content(file)
    record = _parsed(file, content)
    if not isinstance(record, dict):
        raise InputError(f"{file} is no record of a run: expected a mapping, got {kind(record)}")
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


def is_changed(folder: Path, name: str, hashes: Mapping[str, str]) -> bool:
    """Whether a file is there and is not what its hash says; one without a hash was perhaps left by a kill."""
    path = folder / name
    return bool(hashes.get(name)) and path.is_file() and digest(path) != hashes[name]


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
    return folder.resolve() in (folder / name).resolve().parents
