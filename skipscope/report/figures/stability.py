"""Perturbations on their way through a trunk: their size at every state, their growth across every unit, and their
components along the right singular vectors of units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy
import xarray

from skipscope.report.charts import GREY_LINE, Series, axis, chart, reference, thin_lines, titled_first
from skipscope.report.style import (
    COLOURS,
    POINTS_IN_CURVE,
    marked,
    middle_and_spread,
    named_ticks,
    names_of,
    needs_logarithm,
    thinned,
)

IMAGES_DRAWN = 20  # of more of them, evenly spaced
WAYS = {"actual": "actual", "predicted": "predicted"}  # quantity: title
BINS = 30  # of the indices of singular vectors, evenly spaced in their logarithm
ALWAYS_SHOWN = 10  # leading singular vectors that thinning never leaves out


def growth(dataset: xarray.Dataset) -> Any:
    """RMS of the perturbation at every state; one panel per kind, one thin line per sample, the median thick."""
    kinds, states = names_of(dataset, "kind"), names_of(dataset, "state")
    places, hover = list(range(len(states))), "%{text}<br>RMS %{y:.3g}"
    series: list[Series] = []
    for panel, kind in enumerate(kinds):
        sizes = dataset["rms"].sel(kind=kind).transpose("sample", "state")
        images = {f"image {dataset['sample'].values[k]}": sizes.values[k] for k in shown_images(dataset)}
        look_of_images = {"legendgroup": "images", "opacity": 0.6}
        series += thin_lines("one image", places, images, hover, panel=panel, text=states, **look_of_images)
        median = sizes.median("sample")
        series.append(Series("median", places, median, hover, "{name}", panel, 0, "lines", width=3.5, text=states))
    figure = chart(
        series,
        panels=kinds,
        x={**named_ticks(_ticks(dataset)), **axis("state at the entry of")},
        y=titled_first("RMS of the perturbation", len(kinds), log=True),
        height=440,
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )
    for panel in range(len(kinds)):
        for place in stage_boundaries(dataset):
            figure.add_vline(x=place, line={**GREY_LINE, "dash": "dot"}, row=1, col=panel + 1)
    return figure


def stage_boundaries(dataset: xarray.Dataset) -> list[int]:
    """Places of the states that enter another stage than the unit before them belongs to."""
    if "stage" not in dataset.coords:
        return []
    stages = [int(stage) for stage in dataset["stage"].values]
    return [place for place in range(1, len(stages)) if stages[place] != stages[place - 1]]


def prediction(dataset: xarray.Dataset) -> Any:
    """One column per kind. Above: medians of actual and predicted growth of every unit, with quartiles. Below: one
    point per unit and sample, one colour per stage, beside the diagonal.
    """
    kinds, units = names_of(dataset, "kind"), names_of(dataset, "unit")
    series: list[Series] = []
    for panel, kind in enumerate(kinds):
        data = dataset[list(WAYS)].sel(kind=kind).transpose("unit", "sample")
        for place, (way, title) in enumerate(WAYS.items()):
            medians, below, above = middle_and_spread(data, way)
            hover = "{name} growth %{y:.3g}"
            more = {"meta": {"panel": f"{kind}: medians", "series": f"{title} growth"}}
            x = range(len(units))
            line = Series(title, x, medians, hover, "%{text}", panel, place, size=7, text=units, more=more)
            series.append(line.with_error(below, above))
        series += _points(data, panel + len(kinds), labelled=panel == 0)
    figure = chart(
        series,
        panels=[f"{kind}: {what}" for what in ("medians", "every unit and image") for kind in kinds],
        columns=len(kinds),
        x=[{**named_ticks(units), **axis("unit")}] * len(kinds) + [axis("predicted growth")] * len(kinds),
        y=titled_first("growth", len(kinds)) + titled_first("actual growth", len(kinds)),
        height=800,
        shared_yaxes="rows",
        row_heights=[0.42, 0.58],
        vertical_spacing=0.2,
        horizontal_spacing=0.04,
    )
    _set_ranges(figure, dataset)
    return figure


def _points(data: xarray.Dataset, panel: int, *, labelled: bool) -> Iterator[Series]:
    """data: `actual` and `predicted` of one kind, (unit, sample)."""
    units, shown = names_of(data, "unit"), data.isel(sample=shown_images(data))
    hover = "predicted %{x:.3g}, actual %{y:.3g}"
    for place, (first, end) in enumerate(pairwise([0, *stage_boundaries(data), len(units)]), start=len(WAYS)):
        stage, name = shown.isel(unit=slice(first, end)), f"from {units[first]}"
        text = [f"{unit}, image {sample}" for unit in units[first:end] for sample in stage["sample"].values]
        x, y = (stage[way].values.ravel() for way in ("predicted", "actual"))
        points = Series(name, x, y, hover, "%{text}", panel, place, "markers", text=text, more={"opacity": 0.75})
        yield replace(points, labelled=labelled)
    diagonal = reference(list(_span(data)), list(_span(data)), panel=panel)
    yield replace(diagonal, more={**diagonal.more, "meta": {"drawn": "only"}})  # no data


def shown_images(dataset: xarray.Dataset) -> list[int]:
    """Places of the samples that are drawn one by one: evenly spaced, as many as can be read."""
    return thinned(dataset.sizes["sample"], IMAGES_DRAWN)


def _set_ranges(figure: Any, dataset: xarray.Dataset) -> None:
    """The same for both axes of all points, so that the diagonal is one."""
    lowest, highest = _span(dataset)
    if needs_logarithm(numpy.array([lowest, highest])):
        bounds = [numpy.log10(lowest) - 0.05, numpy.log10(highest) + 0.05]
        figure.update_xaxes(type="log", exponentformat="power", range=bounds, row=2)
        figure.update_yaxes(type="log", exponentformat="power", range=bounds, row=2)
        figure.update_yaxes(type="log", exponentformat="power", row=1)
        return
    margin = 0.05 * (highest - lowest) or 0.1
    figure.update_xaxes(range=[lowest - margin, highest + margin], row=2)
    figure.update_yaxes(range=[lowest - margin, highest + margin], row=2)


def _span(dataset: xarray.Dataset) -> tuple[float, float]:
    both = numpy.concatenate([dataset[way].values.ravel() for way in WAYS])
    finite = both[numpy.isfinite(both)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _ticks(dataset: xarray.Dataset) -> list[str]:
    """States are the units' entries, which have the units' names, and behind them the exit of the last unit."""
    entries = names_of(dataset, "state")[: dataset.sizes["unit"]]
    return entries + ["exit"] * (dataset.sizes["state"] - len(entries))


def projections(dataset: xarray.Dataset) -> Any:
    """|alpha_i| against i; one panel per projected unit, one colour per kind, singular values on a second axis.

    Points: single samples, thinned evenly in the logarithm of i. Thick lines: root of the mean square over the samples
    and over bins of i.
    """
    units, kinds = names_of(dataset, "project"), names_of(dataset, "kind")
    columns = min(2, len(units))
    rows = -(-len(units) // columns)
    series: list[Series] = []
    ranges: dict[int, tuple[list[float], list[float]]] = {}  # by panel, of x and of y
    for panel, unit in enumerate(units):
        alpha = numpy.abs(dataset["projection"].sel(project=unit).transpose("kind", "sample", "index").values)
        sigma = dataset["singular_value"].sel(project=unit).median("sample").values
        length = int(numpy.isfinite(alpha).any((0, 1)).sum())
        if length == 0:
            continue
        lows = []
        for place, kind in enumerate(kinds):
            x, y, samples = _components(alpha[place, :, :length])
            texts = [f"image {dataset['sample'].values[sample]}" for sample in samples]
            more: dict[str, Any] = {"opacity": 0.35, "meta": {"panel": unit, "series": f"{kind}, single images"}}
            hover, heading = "i = %{x}, |alpha| = %{y:.3g}", "{name}, %{text}"
            points = Series(kind, x, y, hover, heading, panel, place, "markers", 4, text=texts, more=more)
            centres, sizes = binned(alpha[place, :, :length])
            more = {"meta": {"panel": unit, "series": f"{kind}, root mean square"}}
            hover, heading = "i about %{x:.0f}: %{y:.3g}", "{name}, root mean square"
            line = Series(kind, centres, sizes, hover, heading, panel, place, "lines", width=3, more=more)
            series += [replace(points, labelled=False), replace(line, labelled=panel == 0)]
            lows += [size for size in sizes if size > 0]
        shown = _spread(length, POINTS_IN_CURVE)
        more = {
            "meta": {"panel": unit, "series": "singular value"},
            "legendgroup": "singular value",
            "line": {"color": COLOURS[-1], "width": 1.5, "dash": "dot"},
            "marker": None,
            "secondary_y": True,
        }
        name, heading = "singular value (right axis)", "singular value %{x}: %{y:.3g}"
        values = Series(name, shown + 1, sigma[shown], "", heading, panel, 0, "lines", more=more)
        series.append(replace(values, labelled=panel == 0))
        ranges[panel] = [-0.05, max(0.1, 1.02 * numpy.log10(length))], [numpy.log10(min(lows, default=1e-3)) - 0.7, 0.1]
    figure = chart(
        series,
        panels=[marked(dataset, unit, "project") for unit in units],
        columns=columns,
        x=axis("i", type="log", dtick=1),
        y={},
        height=330 * rows + 80,
        specs=[[{"secondary_y": True}] * columns] * rows,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.14,
    )
    for panel, (of_x, of_y) in ranges.items():
        here = {"row": panel // columns + 1, "col": panel % columns + 1}
        figure.update_xaxes(range=of_x, **here).update_yaxes(range=of_y, secondary_y=False, **here)
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text="|alpha|", secondary_y=False, row=row, col=1)
        last = min(columns, len(units) - (row - 1) * columns)
        figure.update_yaxes(title_text="singular value", secondary_y=True, row=row, col=last)
    figure.update_yaxes(type="log", dtick=1, exponentformat="power", secondary_y=False)
    figure.update_yaxes(rangemode="tozero", showgrid=False, tickmode="auto", nticks=6, secondary_y=True)
    return figure.update_layout(margin={"r": 60})


def binned(alpha: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """alpha: (samples, indices). Centres of the bins of i = 1, 2, ... and the root of the mean square in each."""
    length = alpha.shape[1]
    edges = numpy.unique(numpy.round(numpy.geomspace(1, length + 1, BINS + 1)).astype(int))
    pairs = list(pairwise(edges))
    centres = numpy.array([numpy.sqrt(first * (end - 1)) for first, end in pairs])
    return centres, numpy.array([_root_mean_square(alpha[:, a - 1 : b - 1]) for a, b in pairs])


def _root_mean_square(values: numpy.ndarray) -> float:
    there = values[numpy.isfinite(values)]
    return float(numpy.sqrt(numpy.mean(there**2))) if there.size else float("nan")


def _components(alpha: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """i, |alpha_i| and the place of the sample, about POINTS_IN_CURVE of them."""
    indices = _spread(alpha.shape[1], max(2 * ALWAYS_SHOWN, POINTS_IN_CURVE // len(alpha)))
    samples = numpy.repeat(numpy.arange(len(alpha)), len(indices))
    return numpy.tile(indices + 1, len(alpha)), alpha[:, indices].ravel(), samples


def _spread(length: int, count: int) -> numpy.ndarray:
    """Indices from 0, evenly spaced in the logarithm of i, after the leading ones, which are all there."""
    if length <= count:
        return numpy.arange(length)
    leading = numpy.arange(1, min(length, ALWAYS_SHOWN) + 1)
    spaced = numpy.round(numpy.geomspace(1, length, count)).astype(int)
    return numpy.union1d(leading, spaced) - 1
