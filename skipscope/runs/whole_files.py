"""Files that are there whole or not at all: the one place where a run, the cache and a report put bytes on a disk.

The content is complete in memory before anything is opened, so that a full disk or a broken one is an error of a single
`write` and never one inside a library that is in the middle of its own file format (HDF5 does not survive it). The
bytes go into a new file in the same folder, to the disk, and then under their name.

The temporary name cannot be guessed and has to be new: in a folder that others may write to, nobody can put a link
there that leads the bytes elsewhere. A name of fixed length also leaves room for names as long as a file system takes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from pathlib import Path

from skipscope.errors import InputError

BEGIN, END = ".skipscope-", ".part"
# What a killed process leaves behind; the second form is that of older versions, which put the process's number there.
HALF_WRITTEN = re.compile(rf"{re.escape(BEGIN)}[0-9a-f]{{16}}{re.escape(END)}|\.\d+\..*", re.DOTALL)
STALE = 86400.0  # seconds after which no living process is still writing a file
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither such links nor the flag
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: Path, content: bytes | memoryview, *, within: Path | None = None) -> None:
    """The whole file or none. within: a folder below which no part of the path may be a link."""
    temporary = path.with_name(f"{BEGIN}{secrets.token_hex(8)}{END}")
    try:
        if within is not None:
            require_no_links(path, within)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, _NEW_FILE, 0o666)
        try:
            rest = memoryview(content).cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except (OSError, ValueError) as error:  # ValueError: no file system takes the name
        raise InputError(f"cannot write {path}: {reason_of(error)}; {_remedy(error)}") from error
    finally:
        with contextlib.suppress(ValueError):
            remove(temporary)


def require_no_links(path: Path, within: Path) -> None:
    """Refuse a folder below `within` that is a link: a run folder that came from somebody else may hold one."""
    place = within
    for part in path.relative_to(within).parts[:-1]:
        place /= part
        if place.is_symlink():
            raise InputError(f"{path} would be written through the link {place}; remove the link, or choose a copy")


def remove_half_written(folder: Path, older_than: float = 0.0) -> None:
    """In a folder and below, but not through links; only where all such names are ours. older_than: seconds."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = Path(place, name)
            with contextlib.suppress(OSError):  # whoever cannot remove it, is not kept from working
                if HALF_WRITTEN.fullmatch(name) and time.time() - file.lstat().st_mtime >= older_than:
                    file.unlink()


def remove(file: Path) -> None:
    """What is not needed any more; where that cannot be done, nothing is lost."""
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)


def reason_of(error: OSError | ValueError) -> str:
    """Without the path, which the message has already."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _remedy(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return "make room there and go on, or choose another folder"
    return "choose another folder"
