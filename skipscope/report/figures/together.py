"""Several networks in one figure, on one scale: how much of their directions units and whole stages lose, and how much
they can amplify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import xarray

from skipscope.report.charts import GREY_LINE, Axis, Series, axis, chart
from skipscope.report.style import marked, named_ticks, names_of, needs_logarithm

QUANTITIES = {"share_zero": "share of directions lost", "largest": "largest singular value"}
LABELS = {"share_zero": "share of<br>directions lost", "largest": "largest<br>singular value"}
PARTS = {"unit": "units", "stage": "whole stages"}


def together(datasets: Mapping[str, xarray.Dataset]) -> Any:
    """Networks whose units have the same names, one curve each: the share of singular values that are 0 and the largest
    singular value, of units at the left and of whole stages at the right; means over the samples with their standard
    deviations.

    datasets: of `ss.spectra`, or leading singular values, by network.
    """
    first = next(iter(datasets.values()))
    parts = [part for part in PARTS if part in _kinds(first)]
    quantities = [key for key in QUANTITIES if all(_known(data, key) for data in datasets.values())]
    series: list[Series] = []
    x: list[Axis] = []
    y: list[Axis] = []
    for key in quantities:
        found = []
        for part in parts:
            panel = len(x)
            for place, (network, data) in enumerate(datasets.items()):
                here = data.isel(unit=_kinds(data) == part)
                values = _values(here, key)
                mean, deviation = values.mean("sample").values, values.std("sample").values
                names = [marked(here, name) for name in names_of(here, "unit")]
                more = {"meta": {"panel": f"{PARTS[part]}: {QUANTITIES[key]}"}}
                hover = f"{QUANTITIES[key]} of %{{text}}: %{{y:.3g}}"
                error = deviation if values.sizes["sample"] > 1 else None
                line = Series(network, range(len(names)), mean, hover, panel=panel, place=place, text=names, more=more)
                series.append(line.with_error(error))
                found.append(mean)
            bottom = key == quantities[-1]
            ticks = named_ticks(names_of(first.isel(unit=_kinds(first) == part), "unit"), 12 if part == "unit" else 4)
            x.append({**ticks, **axis(part if bottom else ""), "showticklabels": bottom})
        log = needs_logarithm(numpy.concatenate(found)) and key == "largest"
        bottom_of_scale = {} if log else {"rangemode": "tozero"}
        y += [axis(LABELS[key], log=log, **bottom_of_scale), *[axis(log=log, **bottom_of_scale)] * (len(parts) - 1)]
    figure = chart(
        series,
        panels=[*(PARTS[part] for part in parts), *[""] * (len(parts) * (len(quantities) - 1))],
        columns=len(parts),
        x=x,
        y=y,
        height=240 * len(quantities) + 100,
        shared_yaxes="rows",
        column_widths=_widths(first, parts),
        vertical_spacing=0.08,
        horizontal_spacing=0.03,
    )
    for column in range(len(parts)):
        figure.add_hline(y=1, line={**GREY_LINE, "dash": "dot"}, row=len(quantities), col=column + 1)
    return figure.update_layout(margin={"t": 60})


def _kinds(data: xarray.Dataset) -> numpy.ndarray:
    return data["kind"].values.astype(str) if "kind" in data.coords else numpy.full(data.sizes["unit"], "unit")


def _widths(data: xarray.Dataset, parts: list[str]) -> list[float]:
    """More room for what has more members, and never less than a quarter."""
    counts = [int((_kinds(data) == part).sum()) for part in parts]
    shares = [max(0.25, count / sum(counts)) for count in counts]
    return [share / sum(shares) for share in shares]


def _known(data: xarray.Dataset, key: str) -> bool:
    return key in data or (key == "largest" and "rank" in data.dims)


def _values(data: xarray.Dataset, key: str) -> xarray.DataArray:
    return data[key] if key in data else data["value"].isel(rank=0)
