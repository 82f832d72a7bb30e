"""Trained n-shortcut networks: losses and errors against depth, and norms during training.

Means over seeds with their standard deviations. An open marker is a best learning rate on the edge of its grid: a
better one may lie outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import xarray

from skipscope.papers.b.figures.hessians import place_of
from skipscope.report.charts import GREY_LINE, Axis, Series, axis, chart, titled_first
from skipscope.report.style import look

OPEN = "-open"


def tuned_losses(curves: Mapping[str, Sequence[xarray.Dataset]], *, excess: bool) -> Any:
    """Left: log10 of the final loss, or of what it is above the lowest one, against depth. Right: the best rates.

    curves: by name, one dataset per depth with `final` (seed), `best_rate`, `on_edge` and `flat`; for the excess also
    `log_excess` (seed). A network that ends alike at all rates has no best one.
    """
    series: list[Series] = []
    for number, (name, parts) in enumerate(curves.items()):
        place = place_of(name, number)
        symbols = [_symbol(place, part) for part in parts]
        series.append(_points(name, place, parts, [log_losses(part, excess=excess) for part in parts], symbols))
        rates = [numpy.nan if part.attrs["flat"] else part.attrs["best_rate"] for part in parts]
        edges = ["on the edge of its grid" if part.attrs["on_edge"] else "" for part in parts]
        hover, more = "depth %{x}: %{y:.4g} %{text}", _marker(place, symbols)
        x = _depths(parts)
        series.append(Series(name, x, rates, hover, "{name}", 1, place, labelled=False, text=edges, more=more))
    return chart(
        series,
        panels=["log10(final loss - lowest loss)" if excess else "log10(final loss)", "best learning rate"],
        x=_depth_axis(curves),
        y=[{}, axis(log=True)],
        height=460,
        horizontal_spacing=0.1,
    )


def by_depth(curves: Mapping[str, Sequence[xarray.Dataset]], key: str, title: str, *, logarithmic: bool = False) -> Any:
    """A value (seed) against depth, one curve per name, one dataset per depth."""
    series = [
        _points(name, place, parts, [part[key].values for part in parts])
        for place, (name, parts) in enumerate(curves.items())
    ]
    return chart(series, x=_depth_axis(curves), y=axis(title, log=logarithmic), height=440)


def norms_in_training(panels: Mapping[str, Sequence[xarray.Dataset]], x: str) -> Any:
    """Mean |W|_F against step or epoch, one panel per kind of network, one curve per depth.

    panels: by title, one dataset per depth with `norm` (seed, step). Grey lines: where the learning rate drops.
    """
    depths = sorted({int(part.attrs["depth"]) for parts in panels.values() for part in parts})
    figure = chart(
        [
            _band(f"depth {depth}", part["step"], part["norm"].values, x, panel, depths.index(depth))
            for panel, parts in enumerate(panels.values())
            for part in parts
            for depth in [int(part.attrs["depth"])]
        ],
        panels=list(panels),
        x=axis(x),
        y=titled_first("mean |W|_F over layers", len(panels), rangemode="tozero"),
        height=460,
        horizontal_spacing=0.08,
    )
    for panel, parts in enumerate(panels.values()):
        for drop in numpy.atleast_1d(parts[0].attrs.get("drops", ())) if parts else ():
            figure.add_vline(x=float(drop), line={**GREY_LINE, "dash": "dot"}, row=1, col=panel + 1)
    return figure


def state_variances(dataset: xarray.Dataset) -> Any:
    """Variance of the states after each unit, one curve per start; dataset: `variance` (start, seed, unit)."""
    variances = dataset["variance"].transpose("start", "seed", "unit")
    return chart(
        [
            _band(str(start), dataset["unit"], numpy.log10(variances.sel(start=start).values), "unit", labelled=True)
            for start in dataset["start"].values
        ],
        x=axis("units passed"),
        y=axis("log10 variance of the states"),
        height=440,
    )


def log_losses(part: xarray.Dataset, *, excess: bool) -> numpy.ndarray:
    """log10 of the final losses (seed), or of what they are above the lowest one."""
    return part["log_excess"].values if excess else numpy.log10(part["final"].values)


def spread(values: numpy.ndarray) -> float:
    """Standard deviation over seeds; 0 for one of them."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _points(
    name: str,
    place: int,
    parts: Sequence[xarray.Dataset],
    values: Sequence[numpy.ndarray],
    symbols: Sequence[str] | None = None,
) -> Series:
    """Means with error bars, against depth. Networks without a finite value are left out and counted at the point."""
    kept = [row[numpy.isfinite(row)] for row in values]
    means = [float(row.mean()) if len(row) else numpy.nan for row in kept]
    spreads = [spread(row) for row in kept]
    without = [len(row) - len(own) for row, own in zip(values, kept, strict=True)]
    text = [f"{count} of {len(row)} diverged" if count else "" for count, row in zip(without, values, strict=True)]
    more = {"error_y": {"array": spreads, "thickness": 1}, "showlegend": None, **_marker(place, symbols)}
    more |= {"textposition": "bottom left"} if any(text) else {}
    hover = "depth %{x}: %{y:.4g} ± %{error_y.array:.2g} %{text}"
    mode = "lines+markers+text" if any(text) else "lines+markers"
    return Series(name, _depths(parts), means, hover, place=place, mode=mode, size=8, text=text, more=more)


def _marker(place: int, symbols: Sequence[str] | None) -> dict[str, Any]:
    """With a symbol of its own per point."""
    return {} if symbols is None else {"marker": {**look("", place, size=8)["marker"], "symbol": list(symbols)}}


def _band(
    name: str, x: Any, values: numpy.ndarray, along: str, panel: int = 0, place: int | None = None, **more: Any
) -> Series:
    """A mean curve, and a band of one standard deviation around it where there are several seeds; values: seed, x."""
    mean = values.mean(0)
    width = values.std(0, ddof=1) if len(values) > 1 else None
    band = None if width is None else (mean - width, mean + width)
    hover = f"{along} %{{x}}: %{{y:.4g}}"
    return Series(
        name, x, mean, hover, panel=panel, place=place, mode="lines", band=band, more={"marker": None}, **more
    )


def _symbol(place: int, part: xarray.Dataset) -> str:
    return str(look("", place)["marker"]["symbol"]) + (OPEN if part.attrs["on_edge"] else "")


def _depths(parts: Sequence[xarray.Dataset]) -> list[int]:
    return [int(part.attrs["depth"]) for part in parts]


def _depth_axis(curves: Mapping[str, Sequence[xarray.Dataset]]) -> Axis:
    depths = sorted({depth for parts in curves.values() for depth in _depths(parts)})
    return axis("depth", type="log", tickvals=depths, ticktext=[str(depth) for depth in depths])
