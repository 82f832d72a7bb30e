"""All singular values of units and stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import proportions_figure, scree_figure
from skipscope.report.table import Table, number
from skipscope.report.views.view import View, titled

if TYPE_CHECKING:
    import xarray

ABOUT = (
    "Means over {samples} of the largest singular value, the mean, the shares of values above 1.01, in [0.99, 1.01], "
    "in (0, 0.99) and zero, and counts of exact zeros and ones beside those that are proved. The error is the largest "
    "bound of any value and sample{remark}."
)
COLUMNS = {
    "largest": "largest",
    "mean": "mean",
    "share_above": ">1.01",
    "share_near_one": "[.99,1.01]",
    "share_below": "(0,.99)",
    "share_zero": "zero",
    "zeros": "zeros",
    "zeros_at_least": "proved",
    "ones": "ones",
    "ones_at_least": "proved",
}
PANELS = 5  # scree plots side by side


def spectra_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    for name, dataset in datasets.items():
        tables.append(_table(dataset))
        shown = shown_units(dataset)
        figures[f"{name}-scree"] = (
            f"{titled('Singular values', dataset)} in descending order, one curve a sample; the grey line is 1. "
            "Long curves are drawn through 500 of their values.",
            scree_figure(dataset, shown),
        )
        figures[f"{name}-proportions"] = (
            f"{titled('Shares of singular values', dataset)}; means over the samples.",
            proportions_figure(dataset),
        )
    return View(tables, figures)


def shown_units(dataset: xarray.Dataset) -> list[str]:
    """A middle unit of each stage, then whole stages, as many as fit side by side."""
    names = [str(name) for name in dataset["unit"].values]
    if "stage" not in dataset.coords:
        return names[:PANELS]
    units = dataset.where(dataset["kind"] == "unit", drop=True) if "kind" in dataset.coords else dataset
    middle = []
    for stage in sorted({int(stage) for stage in units["stage"].values}):
        members = [
            str(unit) for unit, own in zip(units["unit"].values, units["stage"].values, strict=True) if own == stage
        ]
        middle.append(members[len(members) // 2])
    whole = [name for name in names if name not in {str(unit) for unit in units["unit"].values}]
    return [*middle[: PANELS - 1], *whole[-(PANELS - len(middle[: PANELS - 1])) :]] if whole else middle[:PANELS]


def _table(dataset: xarray.Dataset) -> Table:
    means = dataset[list(COLUMNS)].mean("sample")
    rows = []
    for unit in dataset["unit"].values:
        here, own = means.sel(unit=unit), dataset.sel(unit=unit)
        converged = bool(own["converged"].all())
        rows.append(
            [
                str(unit) + ("" if converged else " *"),
                f"{int(own['exits'])} x {int(own['entries'])}",
                *(number(float(here[key])) for key in COLUMNS),
                number(float(own["bound"].max())),
            ]
        )
    count = dataset.sizes["sample"]
    unconverged = not bool(dataset["converged"].all())
    about = ABOUT.format(
        samples=f"{count} {'sample' if count == 1 else 'samples'}",
        remark="; * marks spectra whose bounds are above the accuracy asked for" if unconverged else "",
    )
    return Table(titled("Spectra", dataset), ["unit", "size", *COLUMNS.values(), "error at most"], rows, about, names=2)
