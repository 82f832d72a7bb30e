"""The largest singular values of units that are too large for a full spectrum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.table import Table, number
from skipscope.report.views.view import View, titled

if TYPE_CHECKING:
    import xarray

SHOWN = 5


def leading_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = []
    for dataset in datasets.values():
        means = dataset[["value", "residual"]].mean("sample")
        shown = min(SHOWN, dataset.sizes["rank"])
        rows = []
        for unit in dataset["unit"].values:
            values = means["value"].sel(unit=unit)
            mark = "" if bool(dataset["converged"].sel(unit=unit).all()) else " *"
            rows.append(
                [
                    f"{unit}{mark}",
                    *(number(float(values[k])) for k in range(shown)),
                    number(float(dataset["residual"].sel(unit=unit).max())),
                ]
            )
        about = (
            "The largest singular values, by block Golub-Kahan iteration; means over the samples. A residual is "
            "|A v - s u| and |A' u - s v| together; * marks units where not all of them converged."
        )
        columns = ["unit", *(f"s{k + 1}" for k in range(shown)), "largest residual"]
        tables.append(Table(titled("Leading singular values", dataset), columns, rows, about))
    return View(tables)
