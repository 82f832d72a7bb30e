"""One run at a time in a folder, told by a lock that the system gives back even when a process is killed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

from skipscope.errors import InputError

HALF_WRITTEN = re.compile(r"\.\d+\.")  # the temporary names of `write_whole`


class Lock:
    NAME = ".lock"

    def __init__(self, folder: Path, what: str) -> None:
        """Take the folder or say who has it; remove what a killed process left half written."""
        self._path = folder / self.NAME
        self._file = self._taken(folder, what)
        for file in folder.rglob(".*"):
            if HALF_WRITTEN.match(file.name):
                file.unlink(missing_ok=True)

    def _taken(self, folder: Path, what: str) -> IO[str]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = self._path.open("w")
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from error
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows has no such locks; there a second run is not noticed
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise InputError(
                f"{folder} holds a run of {what} that is still going on; wait for it or choose another folder"
            ) from error
        return file

    def release(self) -> None:
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()
