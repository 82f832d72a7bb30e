"""The report inside a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.inspection.result import WHAT, Result
from skipscope.report.content import content_of
from skipscope.report.page import page, raise_failures
from skipscope.runs import RunFolder, load_run
from skipscope.runs.whole_files import write_whole

if TYPE_CHECKING:
    import xarray

HEIGHT = 800  # pixels, of a cell


@dataclass(frozen=True)
class Report:
    """What `ss.report` returns: the last line of a cell shows it. html: the page, which needs nothing else."""

    html: str = field(repr=False)
    height: int = HEIGHT

    def save(self, path: Path | str) -> Path:
        """As a file, which any browser opens."""
        write_whole(Path(path), self.html.encode("utf-8", errors="backslashreplace"))
        return Path(path)

    def _repr_html_(self) -> str:
        """A frame of its own, which runs the page's scripts and reaches nothing of the notebook around it."""
        # Links inside the page would otherwise lead to the address of the notebook.
        inside = self.html.replace("<head>", '<head><base href="about:srcdoc">', 1)
        return (
            f'<iframe srcdoc="{html.escape(inside, quote=True)}" sandbox="allow-scripts allow-downloads" '
            f'title="skipscope report" style="width: 100%; height: {self.height}px; border: 1px solid #8888"></iframe>'
        )


def report(*what: Result | xarray.Dataset | Path | str, height: int = HEIGHT) -> Report:
    """The report of a result, a run folder or a single dataset, to be shown in a notebook; of several, side by side.

    height: of the frame, in pixels. Nothing is written, except by `save`. A page holds the library that draws it, about
    5 MB.
    """
    if not what:
        raise InputError("report: expected a result, a run folder or a dataset, got nothing")
    if not isinstance(height, int) or height < 1:
        raise InputError(f"report: height={height!r}: expected a positive number of pixels")
    contents = []
    for number, one in enumerate(what, 1):
        with _folder(one, number) as folder:
            contents.append(content_of(load_run(folder)))
    text = page(contents)
    raise_failures(contents)
    return Report(text, height)


@contextmanager
def _folder(what: Any, number: int) -> Iterator[Path]:
    """A run folder that holds it; for as long as it is read, where it has none of its own."""
    import xarray

    if isinstance(what, str | Path):
        yield Path(what)
    elif isinstance(what, Result) and what.path is not None:
        yield what.path
    elif isinstance(what, Result | xarray.Dataset):
        with TemporaryDirectory() as home:
            folder = Path(home) / f"result {number}"
            if isinstance(what, Result):
                what.save(folder)
            else:
                with RunFolder(folder, WHAT, resumable=False) as run:
                    run.write_dataset(str(what.attrs.get("measure", "dataset")), what)
            yield folder
    else:
        raise InputError(
            f"report: expected what ss.inspect returns, the path of a run folder or an xarray.Dataset, got "
            f"{type(what).__name__}"
        )
