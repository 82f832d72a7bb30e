"""Where a saved model comes from: its configuration, its revision and its files, as a run folder keeps them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HASHED_AT_MOST = 4 * 2**30  # bytes of all weight files together: some seconds on one core
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Origin:
    """revision: the commit that a folder of the local cache is named after; empty where it is not known."""

    configuration: Mapping[str, Any]
    revision: str = ""
    files: tuple[Path, ...] = ()  # with the weights

    def to_dict(self) -> dict[str, Any]:
        """With the SHA-256 of each weight file, as long as they are not too large to read again."""
        sizes = {path: path.stat().st_size for path in self.files}
        hashed = sum(sizes.values()) <= HASHED_AT_MOST
        return {
            "configuration": dict(self.configuration),
            "revision": self.revision or None,
            "weight_files": {
                path.name: {"bytes": size, "sha256": _sha256(path) if hashed else None} for path, size in sizes.items()
            },
        }


def revision_of(commit: str | None, *places: Path) -> str:
    """commit: what a library says; otherwise a folder on the way to the files, as caches name them."""
    if commit:
        return commit
    parts = [part for place in places for part in reversed(place.absolute().parts)]
    return next((part for part in parts if COMMIT.fullmatch(part)), "")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
