"""Several residual streams: one row per unit that mixes them, and curves over the units."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from skipscope.report.figures import streams
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import (
    Picture,
    View,
    alike,
    counted,
    described,
    made_by,
    named,
    samples_of,
    title_of,
    titles,
    unit_numbers,
)

COLUMNS = {
    "sinkhorn_residual": "from doubly stochastic",
    "row_gain": "row gain",
    "column_gain": "column gain",
    "product_row_gain": "row gain of the product",
    "product_column_gain": "column gain of the product",
    "product_second_value": "second value of the product",
    "product_dobrushin": "distance of its rows",
    "branch_share": "share of the branch",
}
GAINS = {"row_gain": "row gain of the mixing matrix", "product_row_gain": "row gain of the product of mixing matrices"}
SHARES = {"branch_share": "share of the branch, |branch| / (|branch| + |skip|)"}
ABOUT = (
    "Each unit mixes {streams} streams by a matrix. From doubly stochastic: the largest distance of a row or column "
    "sum from 1. Row gain: the largest sum of |entries| of a row, what a stream can grow to; column gain: the same of "
    "a column, for gradients. The product is that of the matrices of all units up to this one: its second singular "
    "value and the distance of its rows are 0 where all streams have become one. Medians over {samples}."
)
CAPTION = (
    "{title}, unit by unit: how much the product of the mixing matrices can amplify, how far the streams are still "
    "apart, how far a matrix is from doubly stochastic, and how much of a unit's sum is its branch. Medians over the "
    "samples; bars reach from the lower to the upper quartile."
)


def streams_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = [_table(title, datasets[name]) for name, title in titles("Residual streams", datasets).items()]
    figures = {}
    for group in alike(datasets, "unit"):
        first = next(iter(group))
        caption = CAPTION.format(title=title_of("Residual streams", group))
        name = first if first.split("-")[-1] == "streams" else f"{first}-streams"
        figures[name] = Picture(caption, streams(named(group)), made_by(group[first]))
    numbers = []
    for data in datasets.values():
        medians = data.median("sample")
        numbers += unit_numbers(medians, {title: medians[key] for key, title in GAINS.items()}, scale="gain")
        numbers += unit_numbers(medians, {title: medians[key] for key, title in SHARES.items()}, scale="share")
    return View(tables, figures, described(datasets, _sentence, "Residual streams"), numbers)


def _table(title: str, data: xarray.Dataset) -> Table:
    columns: dict[str, Cell] = {short: key for key, short in COLUMNS.items()}
    about = ABOUT.format(streams=data.attrs["streams"], samples=samples_of(data))
    return table_of(data[list(COLUMNS)].median("sample"), title, columns, about, rows={"unit": "unit"})


def _sentence(words: str, data: xarray.Dataset) -> str:
    last = data.isel(unit=-1).median("sample")
    return (
        f"{words}{counted(data.sizes['unit'], 'unit')} mix {data.attrs['streams']} streams; the product of their "
        f"matrices amplifies a stream at most {number(float(last['product_row_gain']))} times, and its second singular "
        f"value is {number(float(last['product_second_value']))}."
    )
