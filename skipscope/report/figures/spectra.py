"""Singular values: scree plots, shares, the largest ones against depth, and those of 1 beside the exact law."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.report.charts import GREY_LINE, Series, axis, chart, reference
from skipscope.report.style import (
    COLOURS,
    MARKERS,
    by_network,
    kinds_of_branch,
    marked,
    middle_and_spread,
    named_ticks,
    names_of,
    needs_logarithm,
    thinned,
)

DEPTH_COLOURS = ((COLOURS[0], COLOURS[5]), (COLOURS[1], COLOURS[4]), (COLOURS[2], COLOURS[3]))  # the largest, others
PANELS = 5  # scree plots side by side, where nobody says which
SHARES = {
    "share_above": "above 1.01",
    "share_near_one": "in [0.99, 1.01]",
    "share_below": "in (0, 0.99)",
    "share_zero": "zero",
}


def scree(dataset: xarray.Dataset, units: Sequence[str] | None = None, *, logarithmic: bool = False) -> Any:
    """Singular values in descending order, one panel per unit, one curve per sample; a star: it did not converge.

    dataset: `value` with dimensions (network,) unit, sample, index; NaN after the last value. Without a choice of
    units, the middle one of each stage and the last stages.
    """
    networks = by_network(dataset)
    shown_units = middle_units(dataset) if units is None else known_units(dataset, units)
    series = []
    for panel, unit in enumerate(shown_units):
        for place, (network, data) in enumerate(networks.items()):
            for sample in range(data.sizes["sample"]):
                values = data["value"].sel(unit=unit).isel(sample=sample).dropna("index").values
                shown = thinned(len(values))
                x, ranks = [(k + 1) / len(values) for k in shown], [k + 1 for k in shown]
                name, colour = (network, place) if len(networks) > 1 else (f"sample {sample}", sample)
                labelled = panel == 0 and (sample == 0 or len(networks) == 1)
                heading = f"{network or unit}, sample {sample}"
                hover, more = f"singular value %{{customdata}} of {len(values)}: %{{y:.3g}}", {"customdata": ranks}
                line = Series(name, x, values[shown], hover, heading, panel, colour, "lines", width=1.5, more=more)
                series.append(replace(line, labelled=labelled))
    others = [axis(log=logarithmic)] * (len(shown_units) - 1)  # they share the first one
    figure = chart(
        series,
        panels=[marked(dataset, unit) for unit in shown_units],
        x=axis("rank / size", range=[0, 1]),
        y=[axis("singular value", log=logarithmic, rangemode="tozero"), *others],
        height=420,
        shared_yaxes=True,
        horizontal_spacing=0.03,
    )
    return figure.add_hline(y=1, line=GREY_LINE, row="all", col="all")


def units_of(dataset: xarray.Dataset) -> xarray.Dataset:
    """Without whole stages."""
    return dataset.isel(unit=(dataset["kind"] == "unit").values) if "kind" in dataset.coords else dataset


def known_units(dataset: xarray.Dataset, units: Sequence[str]) -> list[str]:
    known = names_of(dataset, "unit")
    for unit in units:
        if unit not in known:
            near = difflib.get_close_matches(unit, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise InputError(f"there is no unit '{unit}' in the dataset{hint}")
    if not units:
        raise InputError("expected at least one unit to draw, got none")
    return list(units)


def middle_units(dataset: xarray.Dataset) -> list[str]:
    """A middle unit of each stage, then whole stages, as many as fit side by side."""
    names = names_of(dataset, "unit")
    if "stage" not in dataset.coords:
        return names[:PANELS]
    units = units_of(dataset)
    middle = []
    for stage in sorted({int(stage) for stage in units["stage"].values}):
        members = names_of(units.isel(unit=(units["stage"] == stage).values), "unit")
        middle.append(members[len(members) // 2])
    whole = [name for name in names if name not in names_of(units, "unit")]
    return [*middle[: PANELS - 1], *whole[-(PANELS - len(middle[: PANELS - 1])) :]] if whole else middle[:PANELS]


def proportions(dataset: xarray.Dataset) -> Any:
    """Shares of singular values above 1.01, within 1 % of 1, below, and zero; stacked, one bar per unit, with standard
    deviations over the samples."""
    units = [marked(dataset, unit) for unit in names_of(dataset, "unit")]
    series = []
    for place, (key, title) in enumerate(SHARES.items()):
        pattern = {"shape": ("", "/", ".", "x")[place], "fgopacity": 0.4, "fillmode": "overlay", "size": 10}
        more = {"marker": {"color": COLOURS[place], "pattern": pattern}, "legendgroup": None}
        shares = Series(title, units, dataset[key].mean("sample"), "{name}: %{y:.3g}", "%{x}", mode="bars", more=more)
        series.append(shares.with_error(dataset[key].std("sample") if dataset.sizes["sample"] > 1 else None))
    y = axis("share of singular values", range=[0, 1])
    return chart(series, x=axis("unit", tickangle=-45, type="category"), y=y, height=420).update_layout(barmode="stack")


def depth(dataset: xarray.Dataset, k: int = 10) -> Any:
    """The k largest singular values against depth, medians over the samples; bars on the largest reach from the lower
    to the upper quartile, open markers did not converge. Units with different kinds of branch are separate curves.

    dataset: `value` with dimensions unit, sample and index or rank.
    """
    units = units_of(dataset)
    names = names_of(units, "unit")
    along = "rank" if "rank" in units.dims else "index"
    largest = units["value"].isel({along: slice(0, k)}).transpose(along, "unit", "sample").to_dataset(name="value")
    labels = [marked(units, name) for name in names]
    kinds = kinds_of_branch(units)
    kinds = kinds if len(kinds) > 1 else {"": list(range(len(names)))}
    series, values = [], []
    for number_of_kind, (kind, places) in enumerate(kinds.items()):
        of_kind = largest.isel(unit=places)
        dark, pale = DEPTH_COLOURS[number_of_kind % len(DEPTH_COLOURS)]
        for place in range(largest.sizes[along]):
            middle, below, above = middle_and_spread(of_kind.isel({along: place}), "value")
            colour, width, size = (pale, 1, 5) if place else (dark, 2.5, 8)
            shape = MARKERS[number_of_kind % len(MARKERS)]
            symbols = [shape if labels[at] == names[at] else f"{shape}-open" for at in places]
            behind = f", {kind}" if kind else ""
            name = f"s2 to s{largest.sizes[along]}{behind}" if place else f"s1{behind}"  # one entry of the legend
            more = {
                "line": {"color": colour, "width": width},
                "marker": {"size": size, "symbol": symbols, "color": colour},
                "meta": {"series": f"s{place + 1}{behind}"},
                "showlegend": place < 2,
            }
            text, hover = [labels[at] for at in places], f"singular value {place + 1}: %{{y:.3g}}"
            line = Series(name, places, middle, hover, "%{text}", text=text, more=more)
            series.append(line if place else line.with_error(below, above))
            values.append(middle[middle > 0])
    y = axis("singular value", log=needs_logarithm(numpy.concatenate(values)))
    return chart(series, x={**named_ticks(names), **axis("unit")}, y=y, height=380)


def law(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Counted ones against proved ones, as shares of n; one point per unit and sample, one colour per network."""
    if isinstance(datasets, xarray.Dataset):
        datasets = {"": datasets}
    diagonal = reference([0, 1], [0, 1])
    series = [replace(diagonal, more={**diagonal.more, "meta": {"drawn": "only"}})]  # no data
    for name, data in datasets.items():
        network = str(data.attrs.get("network", name))
        proved, counted = ((data[key] / data["size"]).values.ravel() for key in ("ones_at_least", "ones"))
        text = [f"{unit}, sample {sample}" for unit in data["unit"].values for sample in range(data.sizes["sample"])]
        hover, labelled = "%{text}<br>proved %{x:.3g}, counted %{y:.3g}", all(one.name != network for one in series)
        points = Series(network, proved, counted, hover, mode="markers", size=9, labelled=labelled, text=text)
        series.append(points)
    return chart(
        series,
        x=axis("proved to be 1, as a share of n: (n - z - 2 r) / n, or 0", range=[-0.02, 1.02]),
        y=axis("counted, as a share of n", range=[-0.02, 1.02]),
        height=520,
    )
