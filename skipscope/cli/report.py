"""`skipscope report`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders.")],
) -> None:
    """Make the report of run folders again, from what is in them.

    Example: skipscope report skipscope-demo
    """
    with contextlib.redirect_stdout(sys.stderr):
        from skipscope.report import write_report

        written = [write_report(path) for path in runs]
    for path in written:
        typer.echo(path)
