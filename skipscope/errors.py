"""Errors that a user can act on.

Each message says what was expected, what came, and what to do. The command line prints it as one line and
leaves with exit code 2; anything else that escapes is a bug and shows its traceback, but for what stops a program
from outside: Ctrl-C, SIGTERM and a lack of memory.
"""

from __future__ import annotations

import sys

SMALL_FILE = 1 << 26  # bytes; a file of at most this size that asks for more memory than there is, is damaged


class SkipscopeError(Exception):
    """Base of all errors that are the input's and not the program's."""


class InputError(SkipscopeError):
    """A model, a file, an option or a batch is not what was expected."""


class TraceError(SkipscopeError):
    """A model cannot be traced, or a trunk has no such piece."""


class Terminated(KeyboardInterrupt):
    """The system asked the process to end (SIGTERM). What handles Ctrl-C handles this too: a run is interrupted."""


def out_of_memory(error: BaseException) -> bool:
    """Did an allocation fail, on whatever device? Asked without loading torch, which nobody may have needed."""
    kinds = (MemoryError, getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError))
    return isinstance(error, kinds) or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:200]
