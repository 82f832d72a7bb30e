"""`skipscope report`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.options import Json, document
from skipscope.cli.talk import command, talk

COMPARISON = Path("comparison.html")


@command
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders; of several, a comparison.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where to put it: for a comparison in place of comparison.html, for one run as a copy."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """The report of a run folder, or a comparison of several. Made again from what is in them.

    Example: skipscope report runs/D.law-quick runs/D.law-full --out law.html --open
    """
    if len(runs) == 1:
        written = _one(runs[0], out)
    else:
        with talk.loading():
            from skipscope.report import write_comparison

        with talk.step("comparing"):
            written = write_comparison(runs, out or COMPARISON)
    talk.result(document({"report": str(written), "runs": [str(run) for run in runs]}) if as_json else str(written))
    if show:
        import webbrowser

        address = written.resolve().as_uri()
        if not webbrowser.open(address):
            talk.say(f"no browser could be opened; the page is at {address}")


def _one(run: Path, out: Path | None) -> Path:
    with talk.loading():
        from skipscope.report import write_report
        from skipscope.runs import write_whole

    with talk.step("writing the report"):
        written = write_report(run)
    if out is None:
        return written
    write_whole(out, lambda path: shutil.copyfile(written, path))
    return out
