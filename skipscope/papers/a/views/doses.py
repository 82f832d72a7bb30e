"""Alignment of networks that differ in one number, or in two."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.papers.a.figures.doses import beyond, doses
from skipscope.report.style import names_of
from skipscope.report.table import Table, number
from skipscope.report.views.view import Picture, View, counted, made_by

CAPTION = (
    "{title}: each quantity after the training against the {dose}, one small picture per quantity. Grey: one point per "
    "network; means with their 95 % intervals over networks (Student's t, on the scale on which claims are judged). "
    "Dotted: the level of random rotations.{beyond} {expected}"
)
BEYOND = (
    " {values} beyond the edge of a picture: where a block has died, its largest singular value is nearly 0, and the "
    "line through 1 / s_1 says nothing."
)
ABOUT = (
    "Mean after the training and its 95 % interval over networks. Decay budget: learning rate x weight decay / (1 - "
    "momentum), summed over all steps."
)


def doses_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    for name, data in datasets.items():
        dose, title = str(data.attrs["dose_is"]), str(data.attrs["title"])
        far = beyond(data)
        words = BEYOND.format(values=f"{counted(far, 'value')} {'lies' if far == 1 else 'lie'}") if far else ""
        caption = CAPTION.format(title=title, dose=dose, beyond=words, expected=data.attrs.get("expected", ""))
        figures[name] = Picture(caption.rstrip(), doses(data), made_by(data))
        tables.append(_table(title, data))
    return View(tables, figures)


def _table(title: str, data: xarray.Dataset) -> Table:
    quantities = names_of(data, "quantity")
    rows = []
    for case in range(data.sizes["case"]):
        here = data.isel(case=case)
        networks = int(here["value"].notnull().any("quantity").sum())
        cells = [_cell(here.sel(quantity=quantity)) for quantity in quantities]
        words = [str(here["series"].item()) or "-", f"{float(here['dose']):g}", str(networks)]
        rows.append([*words, number(float(here["decay_budget"])), *cells])
    columns = ["series", str(data.attrs["dose_is"]), "networks", "decay budget", *quantities]
    return Table(f"By {data.attrs['dose_is']}: {title}", columns, rows, ABOUT, names=1)


def _cell(here: xarray.Dataset) -> str:
    mean, low, high = (float(here[name]) for name in ("mean", "low", "high"))
    if numpy.isnan(mean):
        return "-"
    return number(mean) if numpy.isnan(low) else f"{number(mean)} ({number(low)} to {number(high)})"
