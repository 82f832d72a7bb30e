"""`skipscope report`, and the report of a command that has results of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.beforehand import require_file_place, require_runs
from skipscope.cli.options import Json, document
from skipscope.cli.talk import command, talk

COMPARISON = Path("comparison.html")


@command
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders; of several, a comparison.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page to write, and nothing else; by default report.html in the run's folder, or comparison.html.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """The report of a run folder, or a comparison of several. Made from what is in them.

    Example: skipscope report runs/D.law-quick runs/D.law-full --out law.html --open
    """
    require_runs(runs)
    require_file_place(out)
    with talk.loading():
        from skipscope.report import write_page, write_report

    with talk.step("writing the report" if len(runs) == 1 else "comparing"):
        alone = len(runs) == 1 and out is None
        written = write_report(runs[0]) if alone else write_page(runs, out or COMPARISON)
    talk.result(document({"report": str(written), "runs": [str(run) for run in runs]}) if as_json else str(written))
    if show:
        import webbrowser

        address = written.resolve().as_uri()
        if not webbrowser.open(address):
            talk.say(f"no browser could be opened; the page is at {address}")


@contextlib.contextmanager
def report_written(folder: Path) -> Iterator[None]:
    """The report of a run is written before the block, which prints the results, and is named after it.

    A report that cannot be made, because of a bug in a view, does not hide the results of a long run: the error is
    raised after the block.
    """
    from skipscope.report import write_report

    report, failure = None, None
    with talk.step("writing the report"):
        try:
            report = write_report(folder)
        except Exception as error:
            failure = error
    yield
    if failure is not None:
        raise failure
    talk.say(f"wrote {report}")
