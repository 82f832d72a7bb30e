"""One run at a time in a folder, ensured by a lock that the system releases even when a process is killed."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import IO

from skipscope.errors import InputError

HALF_WRITTEN = re.compile(r"\.\d+\.")  # the temporary names of `write_whole`


class Lock:
    NAME = ".lock"

    def __init__(self, folder: Path, what: str) -> None:
        """Take the folder, which is made where it is not there, or say who has it."""
        self._folder = folder
        self._path = folder / self.NAME
        self._made: list[Path] = []  # folders, the innermost first
        self._found = False  # was the file there?
        self._file = self._opened()
        while not self._locked(self._file, what):
            self._file.close()  # whoever had it removed the file after we opened it: a new one counts
            self._file = self._opened()

    def _opened(self) -> IO[str]:
        try:
            missing = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
            self._made = missing or self._made
            self._folder.mkdir(parents=True, exist_ok=True)
            self._found = self._path.exists()
            return self._path.open("a")  # whose it is, is not known yet
        except FileExistsError as error:
            raise InputError(f"{self._folder} is a file; choose another folder for the run") from error
        except OSError as error:
            self._remove_made()
            raise InputError(
                f"cannot write {self._folder}: {error.strerror or error}; choose another folder"
            ) from error

    def _locked(self, file: IO[str], what: str) -> bool:
        """Whether we have the lock, and have it on the file that others will find."""
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows has no such locks; there a second run is not noticed
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise InputError(
                f"{self._folder} holds a run of {what} that is still going on; wait for it or choose another folder"
            ) from error
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def remove_half_written(self) -> None:
        """What a killed process left; only for a folder that is known to be a run's."""
        for file in self._folder.rglob(".*"):
            if HALF_WRITTEN.match(file.name) and file.is_file():
                file.unlink(missing_ok=True)

    def release(self, *, refused: bool = False) -> None:
        """refused: the folder is not taken after all; leave it as it was found."""
        if self._file.closed:
            return
        if not (refused and self._found):
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._file.close()
        if refused:
            self._remove_made()

    def _remove_made(self) -> None:
        for folder in self._made:
            with contextlib.suppress(OSError):  # somebody has put something into it
                folder.rmdir()
