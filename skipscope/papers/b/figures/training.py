"""Trained n-shortcut networks: losses and errors against depth, and norms during training.

Means over seeds with their standard deviations. An open marker is a best learning rate on the edge of its grid: a
better one may lie outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.papers.b.figures.networks import place_of
from skipscope.report.figures.style import look, shade, styled

if TYPE_CHECKING:
    import xarray

OPEN = "-open"
DROP = {"color": "#999999", "width": 1, "dash": "dot"}  # of the learning rate


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
    """Mean |W|_F against step or epoch, one panel a kind of network, one curve a depth.

    panels: by title, one dataset a depth with `norm` (seed, step). Grey lines: where the learning rate drops.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(1, len(panels), subplot_titles=list(panels), horizontal_spacing=0.08)
    depths = sorted({int(part.attrs["depth"]) for parts in panels.values() for part in parts})
    labelled: set[int] = set()
    for panel, parts in enumerate(panels.values()):
        here = {"row": 1, "col": panel + 1}
        for part in parts:
            depth = int(part.attrs["depth"])
            style = look(f"depth {depth}", depths.index(depth))
            _band(figure, part["step"].values, part["norm"].values, style, depth not in labelled, x, **here)
            labelled.add(depth)
        for drop in numpy.atleast_1d(parts[0].attrs.get("drops", ())) if parts else ():
            figure.add_vline(x=float(drop), line=DROP, **here)
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="mean |W|_F over layers", row=1, col=1)
    return styled(figure, height=460)


def state_variances(dataset: xarray.Dataset) -> Any:
    """Variance of the states after each unit, one curve a start; dataset: `variance` (start, seed, unit)."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, start in enumerate(dataset["start"].values):
        logs = numpy.log10(dataset["variance"].sel(start=start).transpose("seed", "unit").values)
        style = look(str(start), place, size=6)
        _band(figure, dataset["unit"].values, logs, style, True, "unit")
    figure.update_xaxes(title_text="units passed")
    figure.update_yaxes(title_text="log10 variance of the states")
    return styled(figure, height=440)


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
    figure: Any, x: numpy.ndarray, values: numpy.ndarray, style: dict[str, Any], labelled: bool, along: str, **here: int
) -> None:
    """A mean curve, and a band of one standard deviation around it where there are several seeds; values: seed, x."""
    mean = values.mean(0)
    if len(values) > 1:
        width = values.std(0, ddof=1)
        shade(figure, x, mean - width, mean + width, style, **here)
    figure.add_scatter(
        x=x,
        y=mean,
        mode="lines",
        showlegend=labelled,
        **{key: value for key, value in style.items() if key != "marker"},
        hovertemplate=f"{style['name']}<br>{along} %{{x}}: %{{y:.4g}}<extra></extra>",
        **here,
    )


def _symbol(place: int, part: xarray.Dataset) -> str:
    return str(look("", place)["marker"]["symbol"]) + (OPEN if part.attrs["on_edge"] else "")


def _depths(parts: Sequence[xarray.Dataset]) -> list[int]:
    return [int(part.attrs["depth"]) for part in parts]


def _depth_axis(figure: Any, curves: Mapping[str, Sequence[xarray.Dataset]]) -> None:
    depths = sorted({depth for parts in curves.values() for depth in _depths(parts)})
    figure.update_xaxes(type="log", title_text="depth", tickvals=depths, ticktext=[str(depth) for depth in depths])
