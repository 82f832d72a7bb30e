"""A dataset that no view knows: its variables with their sizes and ranges, as a plain table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy

from skipscope.report.table import Table, number
from skipscope.report.views.view import View

if TYPE_CHECKING:
    import xarray

ABOUT = (
    "No view is installed for datasets of this kind{kind}, so they are shown as plain tables: one row per variable, "
    "with its dimensions, and the smallest, mean and largest of its finite values. The values are in data/{name}.nc."
)


def plain_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    return View([_table(name, data) for name, data in datasets.items()])


def _table(name: str, data: xarray.Dataset) -> Table:
    measure = str(data.attrs.get("measure", ""))
    about = ABOUT.format(kind=f" (measure '{measure}')" if measure else "", name=name)
    rows = [[str(key), *_row(values)] for key, values in data.data_vars.items()]
    columns = ["variable", "dimensions", "values", "smallest", "mean", "largest", "not finite"]
    return Table(f"Dataset {name}", columns, rows, about, names=2)


def _row(values: xarray.DataArray) -> list[str]:
    dimensions = " x ".join(f"{name} {size}" for name, size in values.sizes.items()) or "one value"
    if values.dtype.kind not in "biuf":
        return [dimensions, str(values.size), "-", "-", "-", "-"]
    numbers = values.values.astype(float).ravel()
    finite = numbers[numpy.isfinite(numbers)]
    shown = [finite.min(), finite.mean(), finite.max()] if finite.size else [numpy.nan] * 3
    return [dimensions, str(values.size), *(number(float(value)) for value in shown), str(numbers.size - finite.size)]
