"""Perturbations on their way through a trunk: their size at every state, their growth across every unit."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.charts import GREY_LINE, Series, chart, thin_lines, titled_first
from skipscope.report.style import GREY, look, named_ticks, names_of, needs_logarithm, styled, thinned

if TYPE_CHECKING:
    import xarray

IMAGES_DRAWN = 20  # of more of them, evenly spaced
WAYS = {"actual": "actual", "predicted": "predicted"}  # quantity: title


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
        x=named_ticks(_ticks(dataset)),
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
    """One column per kind. Above: medians of actual and predicted growth of every unit. Below: one point per unit and
    sample, one colour per stage, beside the diagonal.
    """
    from plotly.subplots import make_subplots

    kinds, units = names_of(dataset, "kind"), names_of(dataset, "unit")
    figure = make_subplots(
        2,
        len(kinds),
        subplot_titles=[f"{kind}: {what}" for what in ("medians", "every unit and image") for kind in kinds],
        shared_yaxes="rows",
        row_heights=[0.42, 0.58],
        vertical_spacing=0.2,
        horizontal_spacing=0.04,
    )
    for panel, kind in enumerate(kinds):
        data = dataset[list(WAYS)].sel(kind=kind).transpose("unit", "sample")
        for place, (way, title) in enumerate(WAYS.items()):
            figure.add_scatter(
                x=list(range(len(units))),
                y=data[way].median("sample").values,
                text=units,
                mode="lines+markers",
                showlegend=panel == 0,
                meta={"panel": f"{kind}: medians", "series": f"{title} growth"},
                **look(title, place, size=7),
                hovertemplate=f"%{{text}}<br>{title} growth %{{y:.4g}}<extra></extra>",
                row=1,
                col=panel + 1,
            )
        _add_points(figure, data, panel)
    figure.update_xaxes(**named_ticks(units), row=1)
    figure.update_yaxes(title_text="growth", row=1, col=1)
    figure.update_xaxes(title_text="predicted growth", row=2)
    figure.update_yaxes(title_text="actual growth", row=2, col=1)
    _set_ranges(figure, dataset)
    return styled(figure, height=800)


def _add_points(figure: Any, data: xarray.Dataset, panel: int) -> None:
    """data: `actual` and `predicted` of one kind, (unit, sample)."""
    units, shown = names_of(data, "unit"), data.isel(sample=shown_images(data))
    here = {"row": 2, "col": panel + 1}
    edges = [0, *stage_boundaries(data), len(units)]
    for place, (first, end) in enumerate(pairwise(edges)):
        stage = shown.isel(unit=slice(first, end))
        figure.add_scatter(
            x=stage["predicted"].values.ravel(),
            y=stage["actual"].values.ravel(),
            text=[f"{unit}, image {sample}" for unit in units[first:end] for sample in stage["sample"].values],
            mode="markers",
            showlegend=panel == 0,
            opacity=0.75,
            **look(f"from {units[first]}", place + len(WAYS)),
            hovertemplate="%{text}<br>predicted %{x:.4g}, actual %{y:.4g}<extra></extra>",
            **here,
        )
    diagonal, line = list(_span(data)), {"color": GREY, "width": 1}
    only = {"showlegend": False, "hoverinfo": "skip", "meta": {"drawn": "only"}}  # no data
    figure.add_scatter(x=diagonal, y=diagonal, mode="lines", line=line, **only, **here)


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
