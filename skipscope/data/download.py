"""Fetches a data set with torchvision's own download.

Into a folder of its own first, which is renamed when all is there: a download that is killed leaves no half data set
that a later run would take for a broken one.

The digests of its files are kept beside them, and a file that has changed since is an error. torchvision compares what
it fetches with the publisher's digests, and does so once; a file that a disk spoils later would give other numbers in
silence. Files that a user brings have no such list: a run records a digest of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.sealed import BLANK, KEY, seal, seal_of

PATIENCE = 10.0  # seconds without an answer
OFFLINE = "SKIPSCOPE_OFFLINE"
ROOT = "SKIPSCOPE_DATA"
UNFINISHED = ".download-"  # the beginning of the name of a folder that is being fetched into
MANIFEST = ".sha256.json"

# The class in torchvision.datasets, its options, the folder that it leaves.
KNOWN: dict[str, tuple[str, dict[str, Any], str]] = {
    "mnist": ("MNIST", {}, "MNIST"),
    "fashion-mnist": ("FashionMNIST", {}, "FashionMNIST"),
    "cifar10": ("CIFAR10", {}, "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", {}, "cifar-100-python"),
    "imagenette": ("Imagenette", {"size": "160px"}, "imagenette2-160"),
}


def root() -> Path:
    """Where data sets are that are named without a path."""
    if given := os.environ.get(ROOT):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "skipscope" / "data"


class DownloadError(Exception):
    """Why nothing was fetched, in one line."""


def download(name: str, root: Path) -> None:
    """Leaves the data set's folder under `root`, or raises DownloadError."""
    if os.environ.get(OFFLINE, "0") not in ("", "0"):
        raise DownloadError(f"{OFFLINE} is set")
    class_name, options, folder = KNOWN[name]
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=root) as fresh, _quiet():
            print(f"downloading {name} to {root}", file=sys.stderr)
            _fetch(class_name, options, fresh)
            write_manifest(Path(fresh) / folder)
            if not (root / folder).exists():
                shutil.move(Path(fresh) / folder, root / folder)
    except Exception as error:
        # Whatever went wrong (no network, a full disk, a mirror that moved), the user's remedy is the same.
        raise DownloadError(_one_line(error)) from error


def _fetch(class_name: str, options: dict[str, Any], folder: str) -> None:
    from torchvision import datasets

    getattr(datasets, class_name)(folder, download=True, **options)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing on standard output, which is for results; no waiting for a network that is not there."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        socket.setdefaulttimeout(before)


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__


def write_manifest(folder: Path) -> None:
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / MANIFEST).write_bytes(seal(json.dumps({KEY: BLANK, "files": files}).encode()))


def check_manifest(folder: Path) -> None:
    """Of the data set whose files are in this folder, or in one above it; without a list nothing is known."""
    place = next((place for place in (folder, folder.parent) if (place / MANIFEST).is_file()), None)
    if place is None:
        return
    try:
        content = (place / MANIFEST).read_bytes()
        changed = [MANIFEST] if seal_of(content) != "whole" else []
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
