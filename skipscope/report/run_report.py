"""The report of a run, or of several beside each other, from their folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skipscope.errors import InputError
from skipscope.report.content import content_of
from skipscope.report.document import file_names
from skipscope.report.figure_page import LIBRARY, figure_page, library
from skipscope.report.page import page
from skipscope.runs import RunFolder, load_run
from skipscope.runs.files import write_whole


def write_report(path: Path | str) -> Path:
    """Write report.html and figures/ into a run folder and give the report's path."""
    saved = load_run(path)
    content = content_of(saved)
    figures = {name: picture.figure for view in content.views.values() for name, picture in view.figures.items()}
    with RunFolder.reopened(saved.path) as run:
        for name, file in file_names(figures).items():
            run.write_text(f"figures/{file}.html", figure_page(figures[name], name))
        if figures:  # one copy of the library beside the figures serves them all
            run.write_text(f"figures/{LIBRARY}", library())
        return run.write_text("report.html", page([content]))


def write_page(paths: Sequence[Path | str], out: Path | str) -> Path:
    """One page with the report of a run, or of several side by side; the run folders are not touched."""
    out = Path(out)
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file to write, got a folder; try {out / 'report.html'}")
    text = page([content_of(load_run(path)) for path in paths])
    write_whole(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return out
