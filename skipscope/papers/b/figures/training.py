"""Trained n-shortcut networks: losses and errors against depth, and norms during training.

Means over seeds with their standard deviations. An open marker is a best learning rate on the edge of its grid: a
better one may lie outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.papers.b.figures.networks import place_of
from skipscope.report.charts import GREY_LINE, Series, axis, chart, titled_first
from skipscope.report.style import look, styled

if TYPE_CHECKING:
    import xarray

OPEN = "-open"


def tuned_losses(curves: Mapping[str, Sequence[xarray.Dataset]], *, excess: bool) -> Any:
    """Left: log10 of the final loss, or of what it is above the lowest one, against depth. Right: the best rates.

    curves: by name, one dataset a depth with `final` (seed), `best_rate`, `on_edge` and `flat`; for the excess also
    `log_excess` (seed). A network that ends alike at all rates has no best one.
    """
    from plotly.subplots import make_subplots

    titles = ["log10(final loss - lowest loss)" if excess else "log10(final loss)", "best learning rate"]
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1)
    for number, (name, parts) in enumerate(curves.items()):
        place = place_of(name, number)
        symbols = [_symbol(place, part) for part in parts]
        logs = [log_losses(part, excess=excess) for part in parts]
        _points(figure, name, place, parts, logs, symbols=symbols, row=1, col=1)
        rates = [numpy.nan if part.attrs["flat"] else part.attrs["best_rate"] for part in parts]
        style = look(name, place, size=8)
        style["marker"] = {**style["marker"], "symbol": symbols}
        figure.add_scatter(
            x=_depths(parts),
            y=rates,
            mode="lines+markers",
            showlegend=False,
            text=["on the edge of its grid" if part.attrs["on_edge"] else "" for part in parts],
            **style,
            hovertemplate=f"{name}<br>depth %{{x}}: %{{y:.4g}} %{{text}}<extra></extra>",
            row=1,
            col=2,
        )
    _depth_axis(figure, curves)
    figure.update_yaxes(type="log", exponentformat="power", row=1, col=2)
    return styled(figure, height=460)


def by_depth(curves: Mapping[str, Sequence[xarray.Dataset]], key: str, title: str, *, logarithmic: bool = False) -> Any:
    """A value (seed) against depth, one curve a name, one dataset a depth."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, (name, parts) in enumerate(curves.items()):
        _points(figure, name, place, parts, [part[key].values for part in parts])
    _depth_axis(figure, curves)
    figure.update_yaxes(title_text=title)
    if logarithmic:
        figure.update_yaxes(type="log", exponentformat="power")
    return styled(figure, height=440)


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
    logarithms = numpy.log10(dataset["variance"].transpose("start", "seed", "unit"))
    return chart(
        [
            _band(str(start), dataset["unit"], logarithms.sel(start=start).values, "unit", labelled=True)
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
    figure: Any,
    name: str,
    place: int,
    parts: Sequence[xarray.Dataset],
    values: Sequence[numpy.ndarray],
    *,
    symbols: Sequence[str] | None = None,
    **here: int,
) -> None:
    """Means with error bars, against depth. What is not finite has no point."""
    style = look(name, place, size=8)
    if symbols is not None:
        style["marker"] = {**style["marker"], "symbol": list(symbols)}
    figure.add_scatter(
        x=_depths(parts),
        y=[float(row.mean()) if numpy.isfinite(row).all() else numpy.nan for row in values],
        error_y={"array": [spread(row) if numpy.isfinite(row).all() else 0.0 for row in values], "thickness": 1},
        mode="lines+markers",
        **style,
        hovertemplate=f"{name}<br>depth %{{x}}: %{{y:.4g}} ± %{{error_y.array:.2g}}<extra></extra>",
        **here,
    )


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


def _depth_axis(figure: Any, curves: Mapping[str, Sequence[xarray.Dataset]]) -> None:
    depths = sorted({depth for parts in curves.values() for depth in _depths(parts)})
    figure.update_xaxes(type="log", title_text="depth", tickvals=depths, ticktext=[str(depth) for depth in depths])
