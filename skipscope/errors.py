"""Errors that a user can act on.

Each message says what was expected, what came, and what to do. The command line prints it as one line and
leaves with exit code 2; anything else that escapes is a bug and shows its traceback.
"""

from __future__ import annotations


class SkipscopeError(Exception):
    """Base of all errors that are the input's and not the program's."""


class InputError(SkipscopeError):
    """A model, a file, an option or a batch is not what was expected."""


class TraceError(SkipscopeError):
    """A model cannot be traced, or a trunk has no such piece."""


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:200]
