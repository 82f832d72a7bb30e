"""What an inspection found, in memory or from a run folder."""

from __future__ import annotations

import html
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.findings import Finding, as_html, findings_of, in_lines
from skipscope.report import Table, write_report
from skipscope.report.content import notes_of_trunk
from skipscope.report.views import sections_of, views
from skipscope.runs import RunFolder, load_run
from skipscope.runs.decisions import Decision
from skipscope.wording import counted

if TYPE_CHECKING:
    import pandas
    import xarray

WHAT = "inspect"


@dataclass(frozen=True)
class Result:
    """datasets: by name, each an xarray.Dataset. left_out: what did not fit, with the reason."""

    datasets: Mapping[str, xarray.Dataset]
    parameters: Mapping[str, Any]
    left_out: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Decision, ...] = ()
    path: Path | None = None  # the run folder, where it has one
    seed: int | None = None
    device: str = "cpu"

    def __getitem__(self, name: str) -> xarray.Dataset:
        if name not in self.datasets:
            raise InputError(f"there is no dataset '{name}'; there are {', '.join(self.datasets) or 'none'}")
        return self.datasets[name]

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers must know about the model that they were measured on."""
        return notes_of_trunk(self.parameters)

    @property
    def findings(self) -> list[Finding]:
        """What the numbers mean: three to six findings where enough was measured, the gravest first."""
        return findings_of(self.datasets)

    @property
    def tables(self) -> list[Table]:
        return [table for view in views(self.datasets) for table in view.tables]

    @property
    def figures(self) -> dict[str, Any]:
        """Plotly figures by name."""
        return {name: picture.figure for view in views(self.datasets) for name, picture in view.figures.items()}

    def plot(self, name: str) -> Any:
        """A figure by its name or the end of it: "scree", "proportions", "profile", "growth"."""
        figures = self.figures
        found = [own for own in figures if own == name] or [own for own in figures if own.endswith(f"-{name}")]
        if not found:
            raise InputError(f"there is no figure '{name}'; there are {', '.join(figures) or 'none'}")
        return figures[found[0]]

    def to_pandas(self, dataset: str | None = None, *, over: Sequence[str] | None = None) -> pandas.DataFrame:
        """All numbers in one long table: `dataset`, `variable`, a column per dimension (`unit`, `sample`), `value`.

        dataset: of this one alone, with a column per variable and a row per combination of the dimensions `over`; by
        default those that most of its variables have, such as unit and sample.
        """
        from skipscope.inspection.tables import long_table, wide_table

        if dataset is not None:
            return wide_table(self[dataset], over)
        if over is not None:
            raise InputError(f"over={over!r}: a choice of dimensions needs a dataset: to_pandas('profile', over=...)")
        return long_table(self.datasets)

    def save(self, path: Path | str) -> Path:
        """As a run folder, which must be new or empty."""
        with RunFolder(
            Path(path), WHAT, parameters=self.parameters, seed=self.seed, device=self.device, resumable=False
        ) as run:
            for name, dataset in self.datasets.items():
                run.write_dataset(name, dataset)
            leave_out(run, self.left_out)
        return run.path

    def report(self, path: Path | str | None = None) -> Path:
        """report.html in the run folder, which is made at `path` where there is none yet."""
        folder = self.path if path is None else self.save(path)
        if folder is None:
            raise InputError("this result is not saved yet: pass the folder to save it to, result.report(path)")
        return write_report(folder)

    def __str__(self) -> str:
        """Notes come first: nobody is to read the findings without them. The tables are in `numbers`."""
        notes = "\n".join(f"note: {note}" for note in self.notes)
        return "\n\n".join(filter(None, [notes, in_lines(self.findings), self._more()]))

    def _repr_html_(self) -> str:
        """For notebooks."""
        notes = "".join(f"<p>note: {html.escape(note)}</p>" for note in self.notes)
        return f"{notes}{as_html(self.findings)}<p>{html.escape(self._more())}</p>"

    def _more(self) -> str:
        number = counted(len(self.left_out), "measurement")
        left_out = f"; {number} left out, see result.left_out" if self.left_out else ""
        return f"{len(self.datasets)} datasets: {', '.join(self.datasets)} (tables: print(result.numbers){left_out})"

    @property
    def numbers(self) -> str:
        """The tables, what was left out, and what a bug in a view keeps from being shown, as text."""
        sections = sections_of(self.datasets)
        tables = [str(table) for section in sections for table in section.view.tables]
        lines = [f"left out: {what}: {why}" for what, why in self.left_out.items()]
        lines += [
            f"{section.heading}: not shown, because of a bug in what shows it: {section.failure!r}"
            for section in sections
            if section.failure is not None
        ]
        return "\n\n".join([*tables, "\n".join(lines)]).strip()


def leave_out(run: RunFolder, left_out: Mapping[str, str]) -> None:
    run.record["left_out"] = dict(left_out)
    for what, why in left_out.items():
        run.note(f"left out: {what}: {why}")


def load(path: Path | str) -> Result:
    """Any run folder: of `inspect`, of a study, of the demo; one whose numbers were changed since is refused."""
    saved = load_run(path)
    saved.require_all()
    for flaw in saved.flaws:
        warnings.warn(f"{saved.path}: {flaw}", stacklevel=2)
    return Result(
        {name: saved.dataset(name) for name in saved.names},
        saved.record["parameters"],
        saved.record.get("left_out", {}),
        saved.claims,
        saved.path,
        saved.record.get("seed"),
        saved.record.get("device", "cpu"),
    )
