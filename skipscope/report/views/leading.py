"""The largest singular values of units that are too large for a full spectrum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import depth
from skipscope.report.style import NOT_CONVERGED_MARK, converged, names_of
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import (
    Curve,
    Picture,
    UnitCurves,
    UnitNumbers,
    View,
    counted,
    in_summary,
    not_converged,
    titles,
    unit_numbers,
    with_marks,
)

if TYPE_CHECKING:
    import xarray

COLUMNS = 5  # singular values in the table
ABOUT = (
    "The largest singular values, by block Golub-Kahan iteration; means over the samples. A residual is "
    "|A v - s u| and |A' u - s v| together; * marks units where not all of them converged."
)
MAPPED = {
    "share_above": "share of singular values above 1.01 (estimated)",
    "share_near_one": "share of singular values in [0.99, 1.01] (estimated)",
}


def leading_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, curves = [], {}, [], []
    for name, title in titles("Leading singular values", datasets).items():
        data = datasets[name]
        tables.append(_table(title, data))
        caption = f"{title} against depth; medians over the samples. Open markers did not converge."
        figures[f"{name}-depth"] = Picture(caption, depth(data))
        numbers += _numbers(data)
        curves.append(leading_curves(data, "Leading singular values"))
    return View(tables, figures, [_sentence(*one) for one in in_summary(datasets)], numbers, curves)


def _table(title: str, data: xarray.Dataset) -> Table:
    means = data["value"].mean("sample")
    leading = {f"s{k + 1}": means.isel(rank=k) for k in range(min(COLUMNS, data.sizes["rank"]))}
    columns: dict[str, Cell] = {name: name for name in leading}
    columns["largest residual"] = ("residual", "max")
    return table_of(
        with_marks(data[["residual", "converged"]].assign(leading)), title, columns, ABOUT, rows={"unit": "unit"}
    )


def _numbers(data: xarray.Dataset) -> list[UnitNumbers]:
    columns = {"largest singular value": data["value"].isel(rank=0)}
    columns |= {title: data[key] for key, title in MAPPED.items() if key in data}
    return unit_numbers(data, {title: values.mean("sample") for title, values in columns.items()})


def leading_curves(data: xarray.Dataset, title: str) -> UnitCurves:
    """`value` (unit, sample, rank) of every unit."""
    found = {}
    for unit in names_of(data, "unit"):
        rows = data["value"].sel(unit=unit).transpose("sample", "rank").values
        ranks = list(range(1, rows.shape[1] + 1))
        mark = "" if converged(data, unit) else NOT_CONVERGED_MARK
        found[unit] = [
            Curve(f"sample {sample}{mark}", ranks, row) for sample, row in zip(data["sample"].values, rows, strict=True)
        ]
    return UnitCurves(str(data.attrs.get("network", "")), title, "rank", "singular value", found)


def _sentence(words: str, data: xarray.Dataset) -> str:
    largest = data["value"].isel(rank=0).mean("sample")
    where = names_of(data, "unit")[int(largest.values.argmax())]
    text = f"{words}the largest singular value of {counted(data.sizes['unit'], 'unit')} too large for all of them is "
    text += f"{number(float(largest.max()))}, in {where}."
    return text + not_converged(data)
