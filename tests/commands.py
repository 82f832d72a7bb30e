"""The command line, called as a user calls it but in this process."""

from __future__ import annotations

import sys

import pytest

from skipscope.cli import main


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of `skipscope ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["skipscope", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code if isinstance(left.value.code, int) else 0


# Part of the text of a program of its own: `command(...)` gives the exit code of `skipscope ...` and what it wrote.
IN_A_PROGRAM = """
import contextlib, io, sys

def command(*arguments):
    from skipscope.cli import main

    sys.argv = ["skipscope", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            return {"code": left.code, "out": out.getvalue(), "err": err.getvalue()}
"""
