"""The digests of a downloaded data set's files, kept beside them: one that has changed since is an error.

torchvision compares what it fetches with the publisher's digests, and does so once; a file that a disk spoils later
would give other numbers in silence. Files that a user brings have no such list: a run records a digest of them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from skipscope.errors import InputError
from skipscope.sealed import BLANK, KEY, seal, seal_of

NAME = ".sha256.json"


def write_manifest(folder: Path) -> None:
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / NAME).write_bytes(seal(json.dumps({KEY: BLANK, "files": files}).encode()))


def check_manifest(folder: Path) -> None:
    """Of the data set whose files are in this folder, or in one above it; without a list nothing is known."""
    for place in (folder, folder.parent):
        if (place / NAME).is_file():
            _check(place)
            return


def _check(place: Path) -> None:
    try:
        content = (place / NAME).read_bytes()
        changed = [NAME] if seal_of(content) != "whole" else []
        if not changed:
            listed = json.loads(content)["files"]
            changed = [name for name, expected in listed.items() if _differs(place / name, expected)]
    except OSError as error:
        raise InputError(f"{place} cannot be read: {error.strerror or error}") from error
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise InputError(
            f"{place}: {changed[0]}{more} is not as it was downloaded (its SHA-256 has changed); "
            "remove the folder, and the data set is fetched again"
        )


def _differs(path: Path, expected: str) -> bool:
    return path.is_file() and _digest(path) != expected  # whether one that is gone is needed, the reader knows


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
