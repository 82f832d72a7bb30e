"""The figure of a population: one column per subject, whose networks differ only in their seeds, one row per quantity.

Each line is a mean over the networks of a subject, in a band from the smallest network to the largest. A band of
standard deviations could reach below zero, where a logarithmic axis has no place, and five networks are few for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.papers.d.population.stored import measure_of
from skipscope.papers.d.studies.noise import MIXTURES
from skipscope.papers.d.studies.projections import TOPS
from skipscope.report.charts import GREY_LINE, Axis, Series, axis, chart, titled_first
from skipscope.report.figures.spectra import SHARES, units_of
from skipscope.report.figures.stability import stage_boundaries
from skipscope.report.style import NAMES_ON_AXIS, marked, named_ticks, names_of

Curves = Mapping[str, xarray.DataArray]  # by their names in the legend: (network, unit) or (network, t)
SHOWN_SHARES = ("share_near_one", "share_above", "share_zero")  # the rest of a unit's values is in (0, 0.99)
MEANS = {"mean": "mean of all values", "mean_positive": "mean of the values other than 0"}


@dataclass(frozen=True)
class Row:
    title: str  # of the vertical axis
    curves: Callable[[xarray.Dataset], Curves]
    log: bool = False


# -- what is drawn of each network


def exact_shares(data: xarray.Dataset) -> Curves:
    return {f"exact {name}": data["mean"].sel(quantity=name, drop=True) for name in ("zeros", "ones")}


def growth_from_start(data: xarray.Dataset) -> Curves:
    """From the entry of the first unit to the exit of each unit; state k is the entry of unit k."""
    growth = data["rms"].isel(state=slice(1, None)) / data["rms"].isel(state=0, drop=True)
    return _by_kind(growth.drop_vars("state").rename(state="unit"))


def growth_of_units(data: xarray.Dataset) -> Curves:
    return _by_kind(data["actual"])


def leading_shares(data: xarray.Dataset, top: int) -> Curves:
    """The share of |d|² of a perturbation d along so many leading right singular vectors."""
    return _by_kind((data["projection"].isel(index=slice(top)) ** 2).sum("index"))


def _by_kind(values: xarray.DataArray) -> Curves:
    """Of perturbations: medians over images."""
    medians = values.median("sample")
    return {kind: medians.sel(kind=kind, drop=True) for kind in medians["kind"].values.tolist()}


def shares_of_values(data: xarray.Dataset) -> Curves:
    return {SHARES[key]: data[key].mean("sample") for key in SHOWN_SHARES}


def means_of_values(data: xarray.Dataset) -> Curves:
    return {title: data[key].mean("sample") for key, title in MEANS.items()}


def mixed(data: xarray.Dataset, key: str) -> Curves:
    """By mixture: means over units and images."""
    means = data[key].mean([name for name in ("unit", "sample") if name in data[key].dims])
    return {title: means.sel(mixture=mixture, drop=True) for mixture, title in MIXTURES.items()}


OF_SPECTRA = (Row("share of singular values", shares_of_values), Row("singular value", means_of_values))
ROWS: dict[str, tuple[Row, ...]] = {  # by measure
    measure_of("counts"): (Row("share of singular values", exact_shares),),
    measure_of("perturbations"): (
        Row("growth since the entry", growth_from_start, log=True),
        Row("growth across the unit", growth_of_units),
    ),
    measure_of("projections"): tuple(
        Row(f"share in the {name}", partial(leading_shares, top=top)) for top, name in TOPS.items()
    ),
    measure_of("spectra"): OF_SPECTRA,
    measure_of("random"): OF_SPECTRA,
    measure_of("noise"): (
        Row("share in [0.99, 1.01]", partial(mixed, key="share_near_one")),
        Row("share of exact ones", partial(mixed, key="share_one")),
    ),
    measure_of("noise-counts"): (Row("share of exact ones", partial(mixed, key="ones")),),
}


# -- the figure


def population(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Means over the networks of each subject, in bands from the smallest network to the largest, over the units with
    dotted lines between stages, or over the share of the trained weights in a mixture with noise.

    datasets: joined ones of the study D.population, all of one measure, by subject.
    """
    if isinstance(datasets, xarray.Dataset):
        datasets = {str(datasets.attrs.get("network", "")): datasets}
    subjects = {subject: single_units(data) for subject, data in datasets.items()}
    measure = str(next(iter(datasets.values())).attrs.get("measure", ""))
    if measure not in ROWS:
        raise InputError(f"expected datasets that a run of D.population has in data/, got one of measure '{measure}'")
    rows = ROWS[measure]
    series: list[Series] = []
    x: list[Axis] = []
    y: list[Axis] = []
    for number, row in enumerate(rows):
        for column, data in enumerate(subjects.values()):
            panel = number * len(subjects) + column
            series += [_line(name, data, values, panel) for name, values in row.curves(data).items()]
            # Names below other rows would run into the next one.
            x.append(_horizontal(data, len(subjects), labelled=number == len(rows) - 1))
        scale = {"dtick": "D2"} if row.log else {"rangemode": "tozero"}  # D2: labels at 1, 2 and 5 of a decade
        y += titled_first(row.title, len(subjects), log=row.log, **scale)
    figure = chart(
        series,
        panels=[*subjects, *[""] * len(subjects) * (len(rows) - 1)],
        columns=len(subjects),
        x=x,
        y=y,
        height=260 * len(rows) + 170,
        shared_yaxes="rows",
        horizontal_spacing=0.04,
        vertical_spacing=0.06,
    )
    for column, data in enumerate(subjects.values()):
        for place in () if "t" in data.dims else stage_boundaries(data):
            figure.add_vline(x=place - 0.5, line={**GREY_LINE, "dash": "dot"}, row="all", col=column + 1)
    return figure


def single_units(data: xarray.Dataset) -> xarray.Dataset:
    """Without whole stages; the kinds of perturbations, a dimension, are others than those of units and stages."""
    return data if "kind" in data.dims else units_of(data)


def _line(name: str, data: xarray.Dataset, values: xarray.DataArray, panel: int) -> Series:
    over_t = "t" in values.dims
    x, text = (data["t"], None) if over_t else (numpy.arange(data.sizes["unit"]), names_of(data, "unit"))
    hover = "t = %{x:g}: %{y:.4g}" if over_t else "%{text}: %{y:.4g}"
    band = (values.min("network").values, values.max("network").values) if values.sizes["network"] > 1 else None
    return Series(name, x, values.mean("network"), hover, panel=panel, size=4, band=band, text=text)


def _horizontal(data: xarray.Dataset, columns: int, *, labelled: bool) -> Axis:
    if "t" in data.dims:
        return axis("t: share of the trained weights" if labelled else "", showticklabels=labelled)
    names = [marked(data, name) for name in names_of(data, "unit")]
    return {**named_ticks(names, NAMES_ON_AXIS if columns == 1 else 8), "showticklabels": labelled}
