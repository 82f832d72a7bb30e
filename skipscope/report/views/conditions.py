"""Condition numbers of weights and states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import conditions
from skipscope.report.figures.style import names_of
from skipscope.report.table import Table, number
from skipscope.report.views.view import Picture, UnitNumbers, View, spoken_of, titles

if TYPE_CHECKING:
    import xarray

SHORT = {"infinite": "inf", "numerically infinite": "num. inf", "overflow": "overflow"}
INFINITE = "inf: a slice is zero throughout; num. inf: so large that rounding hides the smallest value."
WEIGHTS = (
    "Largest over smallest singular value: of the weight as a matrix, and the largest over the modes of its "
    f"higher-order SVD. {INFINITE}"
)
STATES = f"Of the states of all samples as a matrix of channels x (samples and places). {INFINITE}"
ILL_CONDITIONED = 1e4  # from here on the summary says so
FIGURE = "{title}, layer by layer. Triangles on the dotted line are not finite: hover says how."


def weight_conditions_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = _shown("Condition numbers of weights", datasets, {"matrix": "matrix", "hosvd": "HOSVD"}, WEIGHTS)
    return View(tables, figures, _sentences(datasets, "weights", "hosvd"))


def state_conditions_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    columns = {"condition": "condition number"}
    tables, figures = _shown("Condition numbers of states", datasets, columns, STATES)
    numbers = [_numbers(data) for data in datasets.values()]
    return View(tables, figures, _sentences(datasets, "states", "condition"), numbers)


def _shown(
    title: str, datasets: Mapping[str, xarray.Dataset], columns: Mapping[str, str], about: str
) -> tuple[list[Table], dict[str, Picture]]:
    named = titles(title, datasets)
    tables = [_table(named[name], data, columns, about) for name, data in datasets.items()]
    figures = {
        f"{name}-conditions": Picture(FIGURE.format(title=named[name]), conditions(data))
        for name, data in datasets.items()
    }
    return tables, figures


def _table(title: str, data: xarray.Dataset, columns: Mapping[str, str], about: str) -> Table:
    dimension = "parameter" if "parameter" in data.dims else "state"
    rows = []
    for place in range(data.sizes[dimension]):
        here = data.isel({dimension: place})
        cells = [SHORT.get(str(here[f"{key}_status"].item())) or number(float(here[key])) for key in columns]
        rows.append([str(here[dimension].item()), *cells, number(float(here[f"{next(iter(columns))}_rank"]))])
    return Table(title, [dimension, *columns.values(), "rank"], rows, about)


def _numbers(data: xarray.Dataset) -> UnitNumbers:
    """Of the state at a unit's entry."""
    finite = data["condition"].where(data["condition_status"] == "finite")
    states = [name for name in names_of(data, "state") if not name.startswith("exit of ")]
    return UnitNumbers(
        str(data.attrs.get("network", "")),
        "condition number of the state at the entry",
        {name: float(finite.sel(state=name)) for name in states},
        logarithmic=True,
        words={
            name: status
            for name in states
            if (status := str(data["condition_status"].sel(state=name).item())) != "finite"
        },
    )


def _sentences(datasets: Mapping[str, xarray.Dataset], what: str, key: str) -> list[str]:
    """Only where something is wrong."""
    found = []
    for words, data in spoken_of(datasets):
        names = names_of(data, str(data[key].dims[0]))
        finite = data[f"{key}_status"].values.astype(str) == "finite"
        beyond = [name for name, fine in zip(names, finite, strict=True) if not fine]
        large = float(data[key].values[finite].max()) if finite.any() else 0.0
        if beyond:
            others = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
            found.append(f"{words}{what} are singular, up to rounding: {beyond[0]}{others}.")
        elif large > ILL_CONDITIONED:
            found.append(f"{words}the worst condition number of the {what} is {number(large)}.")
    return found
