"""Transformer block coupling: one row per block, and pictures of all pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.report.figures.block_coupling import block_coupling
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import (
    Picture,
    View,
    described,
    made_by,
    not_converged,
    samples_of,
    titles,
    unit_numbers,
    with_marks,
)

WHAT = {"block": "what a block adds", "branch": "a unit's branch", "unit": "a unit with its skip"}
ABOUT = (
    "m of a Jacobian in the {k} leading singular vectors of another: 0 where both share them. Jacobians of {what}, "
    "from token to token. With the others: mean over all other blocks, for the same tokens. With the next: that of the "
    "block after it. Between tokens: the same block, at other tokens. By chance: with random vectors. Means over "
    "{samples} and over the pairs of tokens {pairs}."
)
CAPTION = (
    "{title}: m of every block's Jacobian (row) in the leading singular vectors of every other (column), mean over the "
    "samples and pairs of tokens; 0 is shared vectors, and chance is {chance}. Where several pairs of tokens were "
    "measured, at the right the same between pairs of tokens of one block."
)
OWN = "coupling with the other blocks (m)"


def coupling_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers = [], {}, []
    for name, title in titles("Block coupling", datasets).items():
        data = datasets[name]
        summary = coupling_summary(data)
        tables.append(_table(title, data, summary))
        key = name if name.split("-")[-1] == "coupling" else f"{name}-coupling"
        chance = number(float(data["chance"].mean())) if "chance" in data else "not measured"
        figures[key] = Picture(CAPTION.format(title=title, chance=chance), block_coupling(data), made_by(data))
        numbers += unit_numbers(data, {OWN: summary["others"]}, scale="share")
    return View(tables, figures, described(datasets, _sentence, "Block coupling"), numbers)


def coupling_summary(data: xarray.Dataset) -> xarray.Dataset:
    """Of every block: means of m_K with the others, the next one, other tokens, and by chance."""
    means = data["coupling"].mean(("sample", "pair")).transpose("unit", "other").values
    count = len(means)
    apart = numpy.where(numpy.eye(count, dtype=bool), numpy.nan, means)
    found = {
        "others": ("unit", numpy.array([_mean(row) for row in apart])),
        "next": ("unit", numpy.array([*(means[i, i + 1] for i in range(count - 1)), numpy.nan])),
        "value": ("unit", data["value"].isel(rank=0).mean(("sample", "pair")).values),
    }
    if data.sizes["pair"] > 1:
        found["tokens"] = ("unit", _between_tokens(data))
    if "chance" in data:
        found["chance"] = ("unit", data["chance"].mean(("sample", "pair")).values)
    return xarray.Dataset(found, {"unit": data["unit"].values})


def _between_tokens(data: xarray.Dataset) -> numpy.ndarray:
    values = data["token_coupling"].mean("sample").transpose("unit", "pair", "other_pair").values
    same = numpy.eye(values.shape[1], dtype=bool)
    return numpy.array([_mean(numpy.where(same, numpy.nan, grid)) for grid in values])


def _mean(values: numpy.ndarray) -> float:
    there = values[numpy.isfinite(values)]
    return float(there.mean()) if there.size else float("nan")


def _table(title: str, data: xarray.Dataset, summary: xarray.Dataset) -> Table:
    columns: dict[str, Cell] = {"with the others": "others", "with the next": "next"}
    if "tokens" in summary:
        columns["between tokens"] = "tokens"
    if "chance" in summary:
        columns["by chance"] = "chance"
    columns["largest value"] = "value"
    shown = summary.assign_coords(unit=with_marks(data)["unit"].values)
    about = ABOUT.format(
        k=data.attrs["k"],
        what=WHAT.get(str(data.attrs["of"]), "a unit"),
        samples=samples_of(data),
        pairs=", ".join(_pairs(data)[:8]),
    )
    return table_of(shown, title, columns, about + not_converged(data), rows={"unit": "block"})


def _pairs(data: xarray.Dataset) -> list[str]:
    """Positions, with their text where it is known."""
    names = [str(name) for name in data["pair"].values]
    if "pair_text" not in data.coords:
        return names
    return [f"{name} ({text})" for name, text in zip(names, data["pair_text"].values, strict=True)]


def _sentence(words: str, data: xarray.Dataset) -> str:
    summary = coupling_summary(data)
    mean = number(_mean(summary["others"].values))
    text = f"{words}the Jacobian of one block is at m = {mean} from diagonal in the leading singular vectors of "
    text += "another, in the mean over all pairs"
    if "chance" in summary:
        text += f" (chance {number(_mean(summary['chance'].values))})"
    return f"{text}."
