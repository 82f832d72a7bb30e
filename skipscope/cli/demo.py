"""`skipscope demo`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.options import Json, document, progress_bars, stopped_by_hand


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the run and its report.")] = Path(
        "skipscope-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For the initial weights and the batches.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a residual network and its plain twin, measure both, write a report: about a minute."""
    with contextlib.redirect_stdout(sys.stderr):
        from skipscope.demo import demo as run_demo

        with stopped_by_hand(f"interrupted; what was finished is in {out}"), progress_bars() as progress:
            result = run_demo(out, seed=seed, progress=progress)
    typer.echo(document(result.to_dict()) if as_json else str(result))
    typer.echo(f"wrote {result.folder / 'report.html'}", err=True)
