"""Condition numbers and ranks of trained networks against the layer: one colour per network, one thin line per seed.

Layers are counted from 1 on, as in the paper. States are those between blocks, the h of its theory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import xarray

from skipscope.papers.c.figures.twins import places, seed_lines
from skipscope.report.charts import GREY_LINE, Series, axis, chart
from skipscope.report.style import COLOURS, GREY, names_of

SYMBOLS = {"infinite": "triangle-up", "numerically infinite": "triangle-up-open", "overflow": "x"}
APART = 0.09  # of the finite values' decades, between the lines of two networks
SHARES = {"error_share": "back-propagated errors", "gradient_share": "weight gradients"}


def weight_conditions(dataset: xarray.Dataset) -> Any:
    """Condition number of the weights against the layer: the paper's figures 7, 8, 10 and 12."""
    series, levels = _conditions(numbered(dataset), "weight")
    figure = chart(series, panels=[""], x=axis("layer"), y=axis("condition number", log=True), height=420)
    return _with_levels(figure, levels)


def hidden_conditions(dataset: xarray.Dataset) -> Any:
    """Condition number, rank over full rank and dead units of the hidden states: the paper's figures 9, 11 and 13."""
    states = between_blocks(dataset)
    series, levels = _conditions(states, "hidden")
    for panel, values in enumerate((states["hidden_rank"] / states["hidden_full_rank"], states["dead_units"]), start=1):
        for name, place in places(names_of(dataset, "network")).items():
            series += seed_lines(values.sel(network=name), name, place, panel)
    figure = chart(
        series,
        panels=["condition number", "numerical rank / full rank", "units that are zero for all samples"],
        columns=1,
        x=[{}, {}, axis("layer")],
        y=[axis("condition number", log=True), {"range": [0, 1.05]}, {"rangemode": "tozero"}],
        height=780,
        shared_xaxes=True,
        vertical_spacing=0.07,
        row_heights=[0.5, 0.25, 0.25],
    )
    return _with_levels(figure, levels)


def conditions_along(dataset: xarray.Dataset) -> Any:
    """Condition numbers of weights (left) and of states between blocks (right) against the layer, one row per network,
    one line per look. What is not finite is left out."""
    data, names = numbered(dataset), names_of(dataset, "network")
    series: list[Series] = []
    for row, name in enumerate(names):
        for place, epoch in enumerate(dataset["epoch"].values):
            here = data.sel(network=name, epoch=epoch)
            for column, key in enumerate(("weight", "hidden")):
                there = (here[f"{key}_status"].astype(str) == "finite").values
                there &= (here["between"].values == 1) | (key == "weight")
                x, y = here["layer"].values[there], here[f"{key}_condition"].values[there]
                title, panel = f"epoch {epoch}", 2 * row + column
                hover = "layer %{x}: %{y:.3g}"
                series.append(Series(title, x, y, hover, f"{name}, {title}", panel, place, "lines", width=1.5))
    rows = len(names)
    return chart(
        series,
        panels=[f"{name}, {what}" for name in names for what in ("weights", "states between blocks")],
        columns=2,
        x=[axis("layer" if panel >= 2 * rows - 2 else "") for panel in range(2 * rows)],
        y=[axis("" if panel % 2 else "condition number", log=True) for panel in range(2 * rows)],
        height=300 * rows + 110,
        shared_yaxes="columns",
        vertical_spacing=0.25 / rows,
        horizontal_spacing=0.08,
    )


def rank_shares(dataset: xarray.Dataset) -> Any:
    """Rank over full rank of back-propagated errors and of weight gradients against the layer, one row per time."""
    times = names_of(dataset, "when")
    panels = [(when, key) for when in times for key in SHARES]
    data = numbered(dataset)
    series: list[Series] = []
    for panel, (when, key) in enumerate(panels):
        for name, place in places(names_of(dataset, "network")).items():
            series += seed_lines(data[key].sel(network=name, when=when), name, place, panel)
    last = 2 * len(times) - 2
    return chart(
        series,
        panels=[f"{SHARES[key]}, {when}" for when, key in panels],
        columns=2,
        x=[axis("layer" if panel >= last else "") for panel in range(len(panels))],
        y=[axis("" if panel % 2 else "rank / full rank", range=[0, 1.05]) for panel in range(len(panels))],
        height=300 * len(times) + 110,
        shared_yaxes=True,
        vertical_spacing=0.25 / len(times),
        horizontal_spacing=0.05,
    )


def numbered(dataset: xarray.Dataset) -> xarray.Dataset:
    return dataset.assign_coords(layer=range(1, dataset.sizes["layer"] + 1))


def between_blocks(dataset: xarray.Dataset) -> xarray.Dataset:
    """At the layers whose states are between blocks; without the output, which is no hidden state."""
    first = dataset["between"].isel(network=0, seed=0).values
    return numbered(dataset).isel(layer=numpy.flatnonzero(first))


def _conditions(dataset: xarray.Dataset, key: str) -> tuple[list[Series], list[float]]:
    """Finite ones as lines; above them one level per network that has others, with one mark per layer."""
    values, statuses = dataset[f"{key}_condition"], dataset[f"{key}_status"].astype(str)
    finite = values.where(statuses == "finite")
    drawn = finite.values[numpy.isfinite(finite.values)]
    low, high = numpy.log10([drawn.min(), drawn.max()]) if drawn.size else (0.0, 1.0)
    step, level = APART * max(high - low, 1.0), high
    series: list[Series] = []
    levels: list[float] = []
    met: set[str] = set()
    for name, place in places(names_of(dataset, "network")).items():
        series += seed_lines(finite.sel(network=name), name, place)
        mine = statuses.sel(network=name).transpose("seed", "layer")
        beyond = [status for status in SYMBOLS if bool((mine == status).any())]
        if beyond:
            level += step
            levels.append(10**level)
            series += [_marks(mine == status, status, name, place, levels[-1]) for status in beyond]
            met |= set(beyond)
    for status in [status for status in SYMBOLS if status in met]:
        marker = {"symbol": SYMBOLS[status], "size": 9, "color": GREY}
        nothing = dict.fromkeys(("line", "legendgroup", "hovertemplate", "showlegend"))
        in_legend = {"marker": marker, "meta": {"drawn": "only"}, **nothing}
        series.append(Series(status, [None], [None], place=0, mode="markers", more=in_legend))
    return series, levels


def _marks(there: xarray.DataArray, status: str, name: str, place: int, level: float) -> Series:
    """One mark per layer, the fainter the fewer seeds have it; there: seed, layer."""
    counts, seeds = there.values.sum(0), there.sizes["seed"]
    layers = numpy.flatnonzero(counts)
    texts = [f"{status} in {counts[k]} of {seeds} seeds" if seeds > 1 else status for k in layers]
    colour, opacity = COLOURS[place % len(COLOURS)], 0.3 + 0.7 * counts[layers] / seeds
    marker = {"symbol": SYMBOLS[status], "size": 8, "color": colour, "opacity": opacity}
    more = {"marker": marker, "line": None, "meta": {"y": texts}}
    x, y = there["layer"].values[layers], numpy.full(len(layers), level)
    heading = "{name}, layer %{x}"
    return Series(name, x, y, "%{text}", heading, 0, place, "markers", labelled=False, text=texts, more=more)


def _with_levels(figure: Any, levels: Sequence[float]) -> Any:
    for level in levels:
        figure.add_hline(y=level, line={**GREY_LINE, "dash": "dot"}, row=1, col=1)
    return figure
