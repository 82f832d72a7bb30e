"""The report of a command that has results of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from skipscope.cli.talk import talk


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
