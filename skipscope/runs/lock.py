"""One run at a time in a folder, ensured by a lock that the system releases even when a process is killed.

Some file systems of clusters have no locks. A run goes on there, and says that a second one would not be noticed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import IO

from skipscope.errors import InputError
from skipscope.runs.whole_files import reason_of

_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # what a lock that somebody else holds is answered with
_OPENED = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Lock:
    NAME = ".lock"

    def __init__(self, folder: Path, what: str, instead: str = "choose another folder") -> None:
        """Take the folder, which is made where it is not there, or say who has it. instead: what to do then, other than
        wait."""
        self._folder, self._instead = folder, instead
        self._path = folder / self.NAME
        self._made: list[Path] = []  # folders, the innermost first
        self._found = False  # was the file there?
        self.lacking = ""  # why there is no lock, where the file system has none
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
            return os.fdopen(os.open(self._path, _OPENED, 0o666), "a")  # whose it is, is not known yet
        except FileExistsError as error:
            raise InputError(f"{self._folder} is a file; choose another folder for the run") from error
        except (OSError, ValueError) as error:
            self._remove_made()
            if self._path.is_symlink():
                raise InputError(f"{self._path} is a link, which no run makes; remove it") from error
            raise InputError(f"cannot write {self._folder}: {reason_of(error)}; choose another folder") from error

    def _locked(self, file: IO[str], what: str) -> bool:
        """Whether we have the lock, and have it on the file that others will find."""
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows has no such locks; there a second run is not noticed
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                file.close()
                raise InputError(
                    f"{self._folder} holds a run of {what} that is still going on; wait for it or {self._instead}"
                ) from error
            self.lacking = (
                f"the file system of {self._folder} has no locks ({reason_of(error)}): a second run in this folder "
                "would not be noticed, so do not start one"
            )
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

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
