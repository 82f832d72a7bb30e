"""Fetches a data set with torchvision's own download.

Into a folder of its own first, which is renamed when all is there: a download that is killed leaves no half data set
that a later run would take for a broken one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skipscope.data.manifest import write_manifest

PATIENCE = 10.0  # seconds without an answer
OFFLINE = "SKIPSCOPE_OFFLINE"

# The class in torchvision.datasets, its options, the folder that it leaves.
KNOWN: dict[str, tuple[str, dict[str, Any], str]] = {
    "mnist": ("MNIST", {}, "MNIST"),
    "fashion-mnist": ("FashionMNIST", {}, "FashionMNIST"),
    "cifar10": ("CIFAR10", {}, "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", {}, "cifar-100-python"),
    "imagenette": ("Imagenette", {"size": "160px"}, "imagenette2-160"),
}


class DownloadError(Exception):
    """Why nothing was fetched, in one line."""


def download(name: str, root: Path) -> None:
    """Leaves the data set's folder under `root`, or raises DownloadError."""
    if os.environ.get(OFFLINE, "0") not in ("", "0"):
        raise DownloadError(f"{OFFLINE} is set")
    class_name, options, folder = KNOWN[name]
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as fresh, _quiet():
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
