"""The profile: one row a unit, curves over the units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import profile_figure
from skipscope.report.table import Table, number, with_error
from skipscope.report.views.view import View, titled

if TYPE_CHECKING:
    import xarray

PANELS = {
    "state_rms": "state RMS at a unit's entry",
    "gradient_rms": "gradient RMS at a unit's entry",
    "jacobian_square": "mean square of a unit's singular values",
    "effective_rank": "effective rank of the entries of all samples",
    "branch_over_skip": "|branch| / |skip|",
    "cosine": "cosine of branch and skip",
}
COLUMNS = {
    "state_rms": "state",
    "gradient_rms": "gradient",
    "branch_over_skip": "|F|/|skip|",
    "cosine": "cos",
    "jacobian_square": "|J|²/n",
    "effective_rank": "eff. rank",
}


def profile_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    for name, dataset in datasets.items():
        medians = dataset.median("sample") if "sample" in dataset.dims else dataset
        rows = [
            [
                str(unit),
                str(dataset["skip"].sel(unit=unit).item()),
                *(_cell(medians.sel(unit=unit), key) for key in COLUMNS),
            ]
            for unit in dataset["unit"].values
        ]
        samples = dataset.sizes.get("sample", 1)
        about = (
            "At each unit's entry h: RMS of h, RMS of the gradient of the output along a random direction, branch "
            "against skip, the mean square of the unit's singular values "
            f"(estimated from {dataset.attrs['probes']} random probes, ± the standard error for a sample), and "
            "the effective rank of all samples' h. "
            f"Medians over {samples} {'sample' if samples == 1 else 'samples'}."
        )
        title = titled("Profile", dataset)
        tables.append(Table(title, ["unit", "skip", *COLUMNS.values()], rows, about, names=2))
        figures[name] = (f"{title}: unit by unit.", profile_figure(dataset, PANELS))
    return View(tables, figures)


def _cell(unit: xarray.Dataset, key: str) -> str:
    """A number of one unit, with its standard error where there is one."""
    error = f"{key}_error"
    return with_error(float(unit[key]), float(unit[error])) if error in unit else number(float(unit[key]))
