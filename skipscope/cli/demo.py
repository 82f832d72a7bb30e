"""`skipscope demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.beforehand import require_run_folder
from skipscope.cli.options import Full, Json, document, say_where
from skipscope.cli.talk import command, stopped, talk


@command
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the run and its report.")] = Path(
        "skipscope-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For the initial weights and the batches.")] = 0,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Train a residual network and its plain twin. Measures both and writes a report: about a minute.

    Example: skipscope demo --out skipscope-demo
    """
    require_run_folder(out, "demo", resume=True)  # a former demo is replaced
    with talk.loading():
        import torch  # noqa: F401  # here, where it is seen to take its time

        from skipscope.demo import ReportError
        from skipscope.demo import demo as run_demo

    say_where("cpu")
    with stopped(f"what was finished is in {out}"), talk.step("demo, about a minute"):
        failure = None
        try:
            result = run_demo(out, seed=seed, announce=talk.progress)
        except ReportError as error:  # what was measured is worth printing
            failure, result = error.failure, error.result
    talk.result(document(result.to_dict()) if as_json else result.full if full else f"{result}\n\nTables: --full.")
    if failure is not None:
        raise failure
    talk.say(f"wrote {result.folder / 'report.html'}")
