"""run.json, as it is read again: what every reader relies on is there and of its kind, or the file is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skipscope.errors import InputError

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


def read_record(folder: Path) -> dict[str, Any]:
    file = folder / NAME
    record = read_json(file)
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
    return {**record, **missing}


def read_json(file: Path) -> Any:
    """A document of a run folder."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        folder = file.parent
        why = (
            f"it has no {file.name}" if folder.is_dir() else "it is a file" if folder.exists() else "it does not exist"
        )
        raise InputError(f"{folder} is no run folder: {why}; expected a folder that skipscope wrote") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}; it is damaged, so run the command again") from error


def kind(value: Any) -> str:
    """What a value of a JSON document is, in words."""
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return _KINDS[type(value)]


def inside(folder: Path, name: str) -> bool:
    """Whether a name in a record is that of a file of this folder; nobody reads or removes others by it."""
    return folder.resolve() in (folder / name).resolve().parents
