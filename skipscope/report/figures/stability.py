"""Perturbations on their way through a trunk: their size at every state, their growth across every unit."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.figures.style import GREY, LOGARITHMIC_FROM, look, named_ticks, names_of, styled, thinned

if TYPE_CHECKING:
    import xarray

SHOWN_IMAGES = 20  # of more of them, evenly spaced
WAYS = {"actual": "actual", "predicted": "predicted"}  # quantity: title


def growth(dataset: xarray.Dataset) -> Any:
    """RMS of the perturbation at every state; one panel a kind, one thin line a sample, the median thick."""
    from plotly.subplots import make_subplots

    kinds, states = names_of(dataset, "kind"), names_of(dataset, "state")
    figure = make_subplots(1, len(kinds), subplot_titles=kinds, shared_yaxes=True, horizontal_spacing=0.04)
    places = list(range(len(states)))
    for panel, kind in enumerate(kinds):
        sizes = dataset["rms"].sel(kind=kind).transpose("sample", "state")
        here = {"row": 1, "col": panel + 1}
        for line, image in enumerate(shown_images(dataset)):
            figure.add_scatter(
                x=places,
                y=sizes.values[image],
                text=states,
                mode="lines",
                name="one image",
                legendgroup="images",
                showlegend=panel == 0 and line == 0,
                line={"color": GREY, "width": 1},
                opacity=0.6,
                meta={"series": f"image {dataset['sample'].values[image]}"},
                hovertemplate=f"image {dataset['sample'].values[image]}<br>%{{text}}<br>RMS %{{y:.3g}}<extra></extra>",
                **here,
            )
        figure.add_scatter(
            x=places,
            y=sizes.median("sample").values,
            text=states,
            mode="lines",
            showlegend=panel == 0,
            **look("median", 0, width=3.5),
            hovertemplate="median<br>%{text}<br>RMS %{y:.3g}<extra></extra>",
            **here,
        )
        for place in stage_boundaries(dataset):
            figure.add_vline(x=place, line={"color": GREY, "width": 1, "dash": "dot"}, **here)
    figure.update_xaxes(**named_ticks([_short(state) for state in states]))
    figure.update_yaxes(type="log", exponentformat="power")
    figure.update_yaxes(title_text="RMS of the perturbation", row=1, col=1)
    return styled(figure, height=440)


def stage_boundaries(dataset: xarray.Dataset) -> list[int]:
    """Places of the states that enter another stage than the unit before them belongs to."""
    if "stage" not in dataset.coords:
        return []
    stages = [int(stage) for stage in dataset["stage"].values]
    return [place for place in range(1, len(stages)) if stages[place] != stages[place - 1]]


def prediction(dataset: xarray.Dataset) -> Any:
    """One column a kind. Above: medians of actual and predicted growth of every unit. Below: one point a unit and
    sample, one colour a stage, beside the diagonal.
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
    return thinned(dataset.sizes["sample"], SHOWN_IMAGES)


def _set_ranges(figure: Any, dataset: xarray.Dataset) -> None:
    """The same for both axes of all points, so that the diagonal is one."""
    lowest, highest = _span(dataset)
    if lowest > 0 and highest > LOGARITHMIC_FROM * lowest:
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


def _short(state: str) -> str:
    return "exit" if state.startswith("exit of ") else state
