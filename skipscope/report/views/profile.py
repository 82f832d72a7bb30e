"""The profile: one row per unit, curves over the units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import xarray

from skipscope.report.figures import profile
from skipscope.report.table import Cell, Table, estimate, number, table_of
from skipscope.report.views.view import (
    Picture,
    UnitNumbers,
    View,
    alike,
    counted,
    described,
    named,
    title_of,
    titles,
    unit_numbers,
)

COLUMNS = {
    "state_rms": "state",
    "gradient_rms": "gradient",
    "branch_over_skip": "|F|/|skip|",
    "cosine": "cos",
    "jacobian_square": "|J|²/n",
    "effective_rank": "eff. rank",
}
MAPPED = {
    "state_rms": "RMS of the state at the entry",
    "gradient_rms": "RMS of the gradient at the entry",
    "branch_over_skip": "|branch| / |skip|",
}


def profile_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    datasets = {name: _without_idle_rank(data) for name, data in datasets.items()}
    tables = [_table(title, datasets[name]) for name, title in titles("Profile", datasets).items()]
    figures = {}
    for group in alike(datasets, "unit"):
        caption = (
            f"{title_of('Profile', group, 'Profiles')}: unit by unit; medians over the samples, bars reach from the "
            "lower to the upper quartile."
        )
        if any("effective_rank" in data for data in group.values()):
            caption += " The effective rank is that of all samples together and at most their number."
        figures[next(iter(group))] = Picture(caption, profile(named(group)))
    sentences = described(datasets, _sentence, "Profiles")
    return View(tables, figures, sentences, [one for data in datasets.values() for one in _numbers(data)])


def _without_idle_rank(dataset: xarray.Dataset) -> xarray.Dataset:
    """Of one sample the effective rank is 1 in every unit, which says nothing of them."""
    return dataset.drop_vars("effective_rank", errors="ignore") if dataset.sizes.get("sample") == 1 else dataset


def _table(title: str, dataset: xarray.Dataset) -> Table:
    medians = _medians(dataset)
    words = {"skip": "skip"} if "skip" in dataset.coords else {}
    columns: dict[str, Cell] = {**words}
    columns |= {short: partial(estimate, key=key) for key, short in COLUMNS.items() if key in dataset}
    if "effective_rank" in dataset and "sample" in dataset.dims:
        most = dataset.sizes["sample"]
        columns[COLUMNS["effective_rank"]] = lambda here: f"{number(float(here['effective_rank']))} of {most}"
    rank = ", and the effective rank of all samples' h, which is at most the number of samples"
    about = (
        "At each unit's entry h: RMS of h, RMS of the gradient of the output along a random direction, branch "
        "against skip, the mean square of the unit's singular values "
        f"(estimated from {dataset.attrs['probes']} random probes, ± the standard error for a sample)"
        f"{rank if 'effective_rank' in dataset else ''}. "
        f"Medians over {counted(dataset.sizes.get('sample', 1), 'sample')}."
    )
    return table_of(medians, title, columns, about, rows={"unit": "unit"}, names=1 + len(words))


def _medians(dataset: xarray.Dataset) -> xarray.Dataset:
    return dataset.median("sample") if "sample" in dataset.dims else dataset


def _sentence(words: str, dataset: xarray.Dataset) -> str:
    medians = _medians(dataset)
    parts = []
    for key, what in (("state_rms", "the state's size (RMS)"), ("gradient_rms", "the gradient's")):
        first, last = float(medians[key][0]), float(medians[key][-1])
        if math.isnan(first) or math.isnan(last):
            continue
        parts.append(f"{what} goes from {number(first)} at the first unit to {number(last)} at the last")
    if not parts:
        return f"{words}neither states nor gradients have a finite size."
    text = f"{words}{', '.join(parts)}"
    ratio = float(medians["branch_over_skip"].median("unit")) if "branch_over_skip" in medians else math.nan
    if math.isfinite(ratio):
        text += f"; a branch is {number(ratio)} times as large as its skip (median over the units)"
    return f"{text}."


def _numbers(dataset: xarray.Dataset) -> list[UnitNumbers]:
    medians = _medians(dataset)
    columns = {
        title: medians[key] for key, title in MAPPED.items() if key in medians and not bool(medians[key].isnull().all())
    }
    return unit_numbers(medians, columns, logarithmic=True)
