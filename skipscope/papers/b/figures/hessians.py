"""Hessians of n-shortcut networks: against depth before training, and against loss and step on the way.

A curve is the mean over runs, its bar or band one standard deviation to each side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import xarray

from skipscope.report.charts import GREY_LINE, Series, axis, chart
from skipscope.report.style import COLOURS, look, members, styled

NETWORKS = ("xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut")  # look the same in all figures
RUNS = "seed"  # the dimension over which means are taken


def place_of(name: str, otherwise: int) -> int:
    """The place by which a network looks; otherwise: that of a curve that is none of them."""
    return NETWORKS.index(name.lower()) if name.lower() in NETWORKS else otherwise


def mean_and_spread(values: xarray.DataArray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Mean, standard deviation (0 of a single run) and number of the runs that have a finite value."""
    finite = values.where(numpy.isfinite(values))
    count = finite.count(RUNS)
    spread = finite.std(RUNS, ddof=1).where(count > 1, 0.0).where(count > 0)
    return finite.mean(RUNS).values, spread.values, count.values


def against_depth(
    dataset: xarray.Dataset,
    quantity: str = "log_condition",
    title: str = "log10 of largest / 10th percentile of |lambda|",
) -> Any:
    """Means with error bars against depth, one curve per kind of network; crosses at the ceiling count masked runs.

    dataset: the quantity and `masked` (architecture, depth, seed); NaN where masked or not measured. Attribute
    `log_ceiling`: above which values are masked.
    """
    depths = dataset["depth"].values
    hover = "{name}, depth %{x}<br>%{y:.4f} ± %{customdata[0]:.2g}, runs: %{customdata[1]}"
    series: list[Series] = []
    for number, (name, data) in enumerate(members(dataset, "architecture")):
        place = place_of(name, number)
        mean, spread, count = mean_and_spread(data[quantity])
        bars = {"type": "data", "array": spread, "thickness": 1.5, "width": 4}
        more: dict[str, Any] = {"error_y": bars, "customdata": numpy.stack([spread, count], 1)}
        series.append(Series(name, depths, mean, hover, "", place=place, size=8, more=more))
        lost = data["masked"].sum(RUNS).values
        if lost.any():
            cross = {"symbol": "x-thin", "size": 10, "line": {"width": 2, "color": COLOURS[place % len(COLOURS)]}}
            more = {"marker": cross, "customdata": lost[lost > 0], "legendgroup": name, "line": None}
            ceiling = numpy.full((lost > 0).sum(), float(dataset.attrs["log_ceiling"]))
            heading = f"{name}, depth %{{x}}: %{{customdata:.0f}} masked"
            x = depths[lost > 0]
            series.append(Series(f"{name}, masked", x, ceiling, "", heading, 0, place, "markers", more=more))
    return chart(series, x=axis("depth", tickvals=depths), y=axis(title, rangemode="tozero"), height=480)


def against_loss(dataset: xarray.Dataset, quantities: Mapping[str, str]) -> Any:
    """Means and bands against the falling loss, one panel per quantity (with the title of its axis).

    dataset: the quantities (architecture, seed, level); `level` are losses, attribute `lowest_loss` the optimum.
    """
    losses = dataset["level"].values
    hover = "{name}, loss %{customdata[0]:.5g}<br>%{y:.4g} ± %{customdata[1]:.2g}, runs: %{customdata[2]}"
    series = []
    for panel, quantity in enumerate(quantities):
        for number, (name, data) in enumerate(members(dataset, "architecture")):
            mean, spread, count = mean_and_spread(data[quantity])
            seen = count > 0
            if seen.any():
                x = losses[seen] - float(dataset.attrs["lowest_loss"])
                band = (mean - spread)[seen], (mean + spread)[seen]
                more = {"customdata": numpy.stack([losses[seen], spread[seen], count[seen]], 1)}
                place = place_of(name, number)
                series.append(Series(name, x, mean[seen], hover, "", panel, place, size=5, band=band, more=more))
    falling = axis("loss above that of the best linear map", log=True, dtick=1, autorange="reversed")
    return chart(
        series,
        panels=[""] * len(quantities),
        x=falling,
        y=[axis(title) for title in quantities.values()],
        height=460,
        horizontal_spacing=0.12,
    )


def learning_dynamics(dataset: xarray.Dataset, run: int = 0) -> Any:
    """Gradient norm and index of one run against the step; grey lines at the gradient's peak and the index' drop.

    dataset: `index` and `step` (seed, epoch), `gradient_norm` (seed, every), `peak` and `drop` (seed).
    """
    from plotly.subplots import make_subplots

    one = dataset.isel({RUNS: run})
    known = one.dropna("epoch", subset=["step"])
    last = int(known["step"].max())
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    figure.add_scatter(
        x=numpy.arange(last + 1),
        y=one["gradient_norm"].values[: last + 1],
        mode="lines",
        **look("norm of the gradient", 0),
        hovertemplate="step %{x}: gradient %{y:.4g}<extra></extra>",
    )
    figure.add_scatter(
        x=known["step"].values,
        y=known["index"].values,
        mode="lines+markers",
        **look("index", 1),
        hovertemplate="step %{x}: index %{y:.4f}<extra></extra>",
        secondary_y=True,
    )
    for key, dash in (("peak", "solid"), ("drop", "dot")):
        figure.add_vline(x=float(one[key]), line={**GREY_LINE, "dash": dash}, layer="below")
    figure.update_xaxes(title_text="step of gradient descent")
    figure.update_yaxes(title_text="norm of the gradient", rangemode="tozero", secondary_y=False)
    index_axis = {"title_text": "share of negative eigenvalues", "showgrid": False, "tickmode": "auto"}
    figure.update_yaxes(**index_axis, tickformat=".3f", secondary_y=True)
    return styled(figure, height=460)
