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
