"""The report inside a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from skipscope.errors import InputError
from skipscope.inspection.result import WHAT, Result
from skipscope.report.content import content_of
from skipscope.report.document import file_names
from skipscope.report.page import page, raise_failures
from skipscope.runs import RunFolder, load_run
from skipscope.runs.whole_files import write_whole
from skipscope.trace import Trunk
from skipscope.trace.running_statistics import NEVER_SEEN

if TYPE_CHECKING:
    import xarray

HEIGHT = 800  # pixels, of a cell
MONITOR = "monitor"  # the attribute `measure` of what a monitor records, and what its run folder is called


class Watching(Protocol):
    """A monitor: the folder that has it comes later, and may import this one."""

    @property
    def datasets(self) -> Mapping[str, xarray.Dataset]: ...


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


def report(
    *what: Result | Watching | Mapping[str, xarray.Dataset] | xarray.Dataset | Path | str, height: int = HEIGHT
) -> Report:
    """The report of a result, a monitor, a run folder, a single dataset or several by their names, to be shown in a
    notebook; of more than one of these, side by side.

    height: of the frame, in pixels. Nothing is written, except by `save`. A page holds the library that draws it, about
    5 MB.
    """
    if not what:
        raise InputError("report: expected a result, a monitor, a run folder or a dataset, got nothing")
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
    if isinstance(what, str | Path):
        yield Path(what)
    elif isinstance(what, Result) and what.path is not None:
        yield what.path
    else:
        with TemporaryDirectory() as home:
            folder = Path(home) / f"result {number}"
            if isinstance(what, Result):
                what.save(folder)
            else:
                _save(_datasets_of(what), getattr(what, "trunk", None), folder)
            yield folder


def _datasets_of(what: Any) -> dict[str, xarray.Dataset]:
    """By names that files can have."""
    import xarray

    if isinstance(what, xarray.Dataset):
        return {str(what.attrs.get("measure", "dataset")): what}
    found = what if isinstance(what, Mapping) else getattr(what, "datasets", None)
    if not isinstance(found, Mapping) or not all(isinstance(one, xarray.Dataset) for one in found.values()):
        raise InputError(
            "report: expected what ss.inspect returns, a monitor, the path of a run folder, an xarray.Dataset or "
            f"several by their names, got {type(what).__name__}"
        )
    if not found:
        raise InputError("report: there is no dataset to show yet; a monitor has some after its first look")
    files = file_names(map(str, found))
    return {files[str(name)]: one for name, one in found.items()}


def _save(datasets: Mapping[str, xarray.Dataset], trunk: Trunk | None, folder: Path) -> None:
    """As a run folder. trunk: of what a monitor watches, whose batch norms see data now."""
    watched = any(one.attrs.get("measure") == MONITOR for one in datasets.values())
    parameters: dict[str, Any] = {}
    if trunk is not None:
        notes = [note for note in trunk.notes if NEVER_SEEN not in note]
        parameters["trunk"] = {**trunk.to_dict(), "notes": notes}
    with RunFolder(folder, MONITOR if watched else WHAT, parameters=parameters, resumable=False) as run:
        for name, one in datasets.items():
            run.write_dataset(name, one)
