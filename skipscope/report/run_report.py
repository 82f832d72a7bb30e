"""The report of a run, or of several side by side, from their folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skipscope.errors import InputError
from skipscope.report.content import Content, content_of
from skipscope.report.document import file_names
from skipscope.report.figure_page import LIBRARY, figure_page, library
from skipscope.report.page import page
from skipscope.runs import RunFolder, load_run
from skipscope.runs.files import write_whole


def write_report(path: Path | str) -> Path:
    """Write report.html and figures/ into a run folder and give the report's path.

    A bug in a view does not keep the rest from being written: its section is marked, and the bug is raised at the end.
    """
    saved = load_run(path)
    content = content_of(saved)
    figures = {name: picture.figure for section in content.sections for name, picture in section.view.figures.items()}
    with RunFolder.reopened(saved.path) as run:
        for name, file in file_names(figures).items():
            run.write_text(f"figures/{file}.html", figure_page(figures[name], name))
        if figures:  # one copy of the library beside the figures serves them all
            run.write_text(f"figures/{LIBRARY}", library())
        written = run.write_text("report.html", page([content]))
    _raise_failures([content])
    return written


def write_page(paths: Sequence[Path | str], out: Path | str) -> Path:
    """One page with the report of a run, or of several side by side; the run folders are not touched."""
    out = Path(out)
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file to write, got a folder; try {out / 'report.html'}")
    contents = [content_of(load_run(path)) for path in paths]
    text = page(contents)
    write_whole(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    _raise_failures(contents)
    return out


def _raise_failures(contents: Sequence[Content]) -> None:
    failures = [failure for content in contents for failure in content.failures]
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup("views of the report that failed", failures)
