"""Condition numbers of weights and states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.table import Table, number
from skipscope.report.views.view import View, titled

if TYPE_CHECKING:
    import xarray

SHORT = {"infinite": "inf", "numerically infinite": "num. inf", "overflow": "overflow"}
INFINITE = "inf: a slice is zero throughout; num. inf: so large that rounding hides the smallest value."


def weight_conditions_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    about = (
        "Largest over smallest singular value: of the weight as a matrix, and the largest over the modes of its "
        f"higher-order SVD. {INFINITE}"
    )
    tables = [
        _table(
            titled("Condition numbers of weights", data),
            data,
            "parameter",
            {"matrix": "matrix", "hosvd": "HOSVD"},
            about,
        )
        for data in datasets.values()
    ]
    return View(tables)


def state_conditions_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    about = f"Of the states of all samples as a matrix of channels x (samples and places). {INFINITE}"
    tables = [
        _table(titled("Condition numbers of states", data), data, "state", {"condition": "condition number"}, about)
        for data in datasets.values()
    ]
    return View(tables)


def _table(title: str, data: xarray.Dataset, dimension: str, columns: Mapping[str, str], about: str) -> Table:
    rows = []
    for place in range(data.sizes[dimension]):
        here = data.isel({dimension: place})
        cells = [SHORT.get(str(here[f"{key}_status"].item())) or number(float(here[key])) for key in columns]
        rows.append([str(here[dimension].item()), *cells, number(float(here[f"{next(iter(columns))}_rank"]))])
    return Table(title, [dimension, *columns.values(), "rank"], rows, about)
