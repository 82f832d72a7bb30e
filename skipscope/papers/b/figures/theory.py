"""The loss around zero weights, and networks with small weights: what the theorems of Demystifying ResNet look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.figures.style import COLOURS, GREY, look, names_of, styled

if TYPE_CHECKING:
    import xarray

BINS = 60
LEVEL = 1e-9  # of the largest eigenvalue: closer ones are one, several times
ROUNDING = 2.0**-52
SMALLEST = 1e-60  # an error that is drawn as it is; smaller ones, and 0, here


def zero_conditions(dataset: xarray.Dataset) -> Any:
    """cond(H) at zero weights against R, one panel a shortcut depth, one curve a data set; dotted: cond(M).

    dataset: `condition` (data, n, units) and `condition_of_M` (data).
    """
    from plotly.subplots import make_subplots

    depths = [int(n) for n in dataset["n"].values]
    titles = [f"shortcuts of depth {n}" for n in depths]
    figure = make_subplots(1, len(depths), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    units = dataset["units"].values
    for panel, n in enumerate(depths):
        here = {"row": 1, "col": panel + 1}
        for place, name in enumerate(names_of(dataset, "data")):
            data = dataset.sel(n=n, data=name)
            line = {"color": COLOURS[place % len(COLOURS)], "width": 1, "dash": "dot"}
            level = [float(data["condition_of_M"])] * 2
            figure.add_scatter(
                x=[units[0], units[-1]], y=level, mode="lines", line=line, showlegend=False, hoverinfo="skip", **here
            )
            figure.add_scatter(
                x=units,
                y=data["condition"].values,
                mode="lines+markers",
                showlegend=panel == 0,
                **look(name, place, size=8),
                hovertemplate=f"{name}<br>R = %{{x}}: cond %{{y:.6g}}<extra></extra>",
                **here,
            )
    figure.update_xaxes(type="log", title_text="units R", tickvals=units, ticktext=[str(u) for u in units])
    figure.update_yaxes(type="log", exponentformat="power")
    figure.update_yaxes(title_text="condition number", row=1, col=1)
    return styled(figure, height=460)


def levels(values: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Different eigenvalues, ascending, and how often each is there."""
    ordered = numpy.sort(values)
    first = numpy.diff(ordered, prepend=-numpy.inf) > LEVEL * abs(ordered).max()
    return ordered[first], numpy.diff(numpy.append(numpy.flatnonzero(first), len(ordered)))


def zero_spectrum(dataset: xarray.Dataset) -> Any:
    """Eigenvalues at zero weights: a histogram for shortcuts of depth 1, a stem for each level of depth 2.

    dataset: `value` (n, index); NaN after the last eigenvalue.
    """
    from plotly.subplots import make_subplots

    titles = ["shortcuts of depth 1: histogram", "shortcuts of depth 2: how often each eigenvalue is there"]
    figure = make_subplots(2, 1, subplot_titles=titles, shared_xaxes=True, vertical_spacing=0.16)
    one, two = (dataset["value"].sel(n=n).dropna("index").values for n in (1, 2))
    counts, edges = numpy.histogram(one, BINS)
    figure.add_bar(
        x=(edges[1:] + edges[:-1]) / 2,
        y=counts,
        width=edges[1] - edges[0],
        marker={"color": COLOURS[0]},
        showlegend=False,
        hovertemplate="around %{x:.3f}: %{y}<extra></extra>",
        row=1,
        col=1,
    )
    values, times = levels(two)
    figure.add_scatter(
        x=numpy.stack([values, values, numpy.full(values.shape, numpy.nan)], 1).ravel(),
        y=numpy.stack([0 * times, times, numpy.full(values.shape, numpy.nan)], 1).ravel(),
        mode="lines",
        line={"color": COLOURS[1], "width": 1},
        hoverinfo="skip",
        showlegend=False,
        row=2,
        col=1,
    )
    figure.add_scatter(
        x=values,
        y=times,
        mode="markers",
        marker={"color": COLOURS[1], "symbol": "diamond", "size": 7},
        showlegend=False,
        hovertemplate="%{x:.6f}: %{y} times<extra></extra>",
        row=2,
        col=1,
    )
    figure.update_xaxes(title_text="eigenvalue of the Hessian", row=2, col=1)
    figure.update_yaxes(title_text="count", rangemode="tozero")
    return styled(figure, height=520)


def zero_stationarity(dataset: xarray.Dataset) -> Any:
    """|L(t u) - L(0)| against t, one curve a shortcut depth, where it is above rounding.

    dataset: `change` (n, t), relative to the loss at zero, and `slope` (n).
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, n in enumerate(dataset["n"].values):
        data = dataset.sel(n=n)
        change = data["change"].where(data["change"] > dataset.attrs["lowest"])
        figure.add_scatter(
            x=dataset["t"].values,
            y=change.values,
            mode="lines+markers",
            **look(f"n = {n}, slope {float(data['slope']):.3f}", place),
            hovertemplate=f"n = {n}<br>t = %{{x:.3g}}: %{{y:.4g}}<extra></extra>",
        )
    figure.update_xaxes(type="log", exponentformat="power", title_text="distance t from zero weights")
    figure.update_yaxes(type="log", exponentformat="power", title_text="|L(t u) - L(0)| / L(0)")
    return styled(figure, height=480)


def small_norms(dataset: xarray.Dataset) -> Any:
    """Largest norm times the square root of R against R, one panel an arrangement; its limit and its bound.

    dataset: `largest`, `bound` and `units` (arrangement, steps), `limit` (arrangement).
    """
    from plotly.subplots import make_subplots

    names = names_of(dataset, "arrangement")
    figure = make_subplots(1, len(names), subplot_titles=names, horizontal_spacing=0.08)
    for panel, name in enumerate(names):
        data, here = dataset.sel(arrangement=name), {"row": 1, "col": panel + 1}
        units, root = data["units"].values, data["units"].values ** 0.5
        shown = {
            "largest |W|": data["largest"].values * root,
            "its limit": numpy.full(len(units), float(data["limit"])),
            "the bound": data["bound"].values * root,
        }
        for place, (title, values) in enumerate(shown.items()):
            figure.add_scatter(
                x=units,
                y=values,
                mode="lines" if place == 1 else "lines+markers",
                showlegend=panel == 0,
                **look(title, place, size=8),
                hovertemplate=f"{title}<br>R = %{{x}}: %{{y:.5g}}<extra></extra>",
                **here,
            )
    figure.update_xaxes(type="log", exponentformat="power", title_text="units R")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="norm times the root of R", row=1, col=1)
    return styled(figure, height=440)


def error_growth(dataset: xarray.Dataset) -> Any:
    """Errors end to end against the decades by which they are predicted to grow, one point a distance rho.

    dataset: `composed`, `exact`, `by_unit` and `growth` (rho).
    """
    import plotly.graph_objects as go

    growth = dataset["growth"].values
    figure = go.Figure()
    span = numpy.array([growth.min(), growth.max()])
    figure.add_scatter(
        x=span,
        y=ROUNDING * 10**span,
        mode="lines",
        line={"color": GREY, "width": 1},
        name="rounding, grown as predicted",
        hoverinfo="skip",
    )
    shown = {"composed": "float64, end to end", "by_unit": "float64, unit by unit", "exact": "long arithmetic"}
    for place, (key, title) in enumerate(shown.items()):
        figure.add_scatter(
            x=growth,
            y=numpy.maximum(dataset[key].values, SMALLEST),
            text=[f"rho = {rho:g}" for rho in dataset["rho"].values],
            mode="lines+markers",
            **look(title, place, size=8),
            hovertemplate=f"%{{text}}<br>{title}: %{{y:.2e}}<br>predicted growth: %{{x:.1f}} decades<extra></extra>",
        )
    figure.update_xaxes(title_text="predicted growth of errors, in decades")
    figure.update_yaxes(type="log", exponentformat="power", title_text="largest error of the output")
    return styled(figure, height=480)
