"""The Jacobian lens: one row per layer with its errors, and curves over layers and prompts."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from skipscope.report.figures.lens import lens, lens_history
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import (
    Picture,
    View,
    alike,
    counted,
    described,
    made_by,
    named,
    not_converged,
    title_of,
    titles,
    unit_numbers,
    with_marks,
)

COLUMNS = {
    "relative_error": "standard error",
    "split_half_cosine": "split-half cosine",
    "identity_cosine": "cosine with identity",
    "gain": "gain",
    "arithmetic_error": "error of the arithmetic",
}
ABOUT = (
    "The lens of a layer is the mean derivative of the last state with respect to the state at a unit's entry, over "
    "{prompts}. Standard error: over the prompts, relative to the lens. Split-half cosine: of the lens of one half of "
    "the prompts and that of the other. Cosine with identity: 1 where the lens is the plain logit lens. Gain: root "
    "mean square of its singular values. Error of the arithmetic: {computed_in} against float64, for some rows. "
    "{stopped}."
)
CAPTION = "{title}: how well each layer is known from the prompts, how far it is from the identity, and its size."
HISTORY = (
    "{title}: standard error over prompts relative to the lens after more and more prompts; it falls with the square "
    "root of their number. Left: the layer that is known worst; right: the median layer."
)
MAPPED = "standard error of the Jacobian lens, relative"


def lens_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = [_table(title, datasets[name]) for name, title in titles("Jacobian lens", datasets).items()]
    figures, numbers = {}, []
    for group in alike(datasets, "unit"):
        first = next(iter(group))
        key = first if first.split("-")[-1] == "lens" else f"{first}-lens"
        title = title_of("Jacobian lens", group)
        figures[key] = Picture(CAPTION.format(title=title), lens(named(group)), made_by(group[first]))
        grown = {name: data for name, data in group.items() if bool(data["history"].notnull().any())}
        if grown:
            picture = lens_history(named(grown))
            figures[f"{key}-prompts"] = Picture(HISTORY.format(title=title), picture, made_by(group[first]))
    for data in datasets.values():
        numbers += unit_numbers(data, {MAPPED: data["relative_error"]}, scale="share")
    return View(tables, figures, described(datasets, _sentence, "Jacobian lens"), numbers)


def _table(title: str, data: xarray.Dataset) -> Table:
    columns: dict[str, Cell] = {short: key for key, short in COLUMNS.items() if key in data}
    about = ABOUT.format(
        prompts=counted(int(data.attrs["prompts"]), "prompt"),
        computed_in=data.attrs["computed_in"],
        stopped=str(data.attrs["stopped"]).capitalize(),
    )
    shown = with_marks(data)[[key for key in COLUMNS if key in data]]
    return table_of(shown, title, columns, about + not_converged(data), rows={"unit": "unit"})


def _sentence(words: str, data: xarray.Dataset) -> str:
    prompts = counted(int(data.attrs["prompts"]), "prompt")
    error = data["relative_error"]
    if bool(error.isnull().all()):
        return f"{words}the Jacobian lens comes from {prompts}, too few for a standard error."
    worst = str(data["unit"].values[int(error.argmax("unit"))])
    return (
        f"{words}the Jacobian lens of {prompts} has a standard error of at most {number(float(error.max()))} of its "
        f"size (at {worst}), and the two halves of the prompts agree to a cosine of at least "
        f"{number(float(data['split_half_cosine'].min()))}."
    )
