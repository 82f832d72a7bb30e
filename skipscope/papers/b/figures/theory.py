"""The loss around zero weights, and networks with small weights: what the theorems of Demystifying ResNet look like."""

from __future__ import annotations

from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart, lines, reference, titled_first
from skipscope.report.style import COLOURS, members, names_of

BINS = 60
LEVEL = 1e-9  # of the largest eigenvalue: closer ones are one, several times
ROUNDING = 2.0**-52
SMALLEST = 1e-60  # an error that is drawn as it is; smaller ones, and 0, here


def zero_conditions(dataset: xarray.Dataset) -> Any:
    """cond(H) at zero weights against R, one panel per shortcut depth, one curve per data set; dotted: cond(M).

    dataset: `condition` (data, n, units) and `condition_of_M` (data).
    """
    units = dataset["units"].values
    series: list[Series] = []
    for panel, (_, of_depth) in enumerate(members(dataset, "n")):
        for place, (name, data) in enumerate(members(of_depth, "data")):
            level, colour = [float(data["condition_of_M"])] * 2, COLOURS[place % len(COLOURS)]
            series += [
                reference([units[0], units[-1]], level, panel=panel, color=colour, dash="dot"),
                Series(name, units, data["condition"], "R = %{x}: cond %{y:.6g}", panel=panel, place=place, size=8),
            ]
    return chart(
        series,
        panels=[f"shortcuts of depth {n}" for n in dataset["n"].values],
        x=axis("units R", type="log", tickvals=units, ticktext=[str(u) for u in units]),
        y=titled_first("condition number", dataset.sizes["n"], log=True),
        height=460,
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )


def levels(values: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Different eigenvalues, ascending, and how often each is there."""
    ordered = numpy.sort(values)
    first = numpy.diff(ordered, prepend=-numpy.inf) > LEVEL * abs(ordered).max()
    return ordered[first], numpy.diff(numpy.append(numpy.flatnonzero(first), len(ordered)))


def zero_spectrum(dataset: xarray.Dataset) -> Any:
    """Eigenvalues at zero weights: a histogram for shortcuts of depth 1, a stem for each level of depth 2.

    dataset: `value` (n, index); NaN after the last eigenvalue.
    """
    one, two = (dataset["value"].sel(n=n).dropna("index").values for n in (1, 2))
    counts, edges = numpy.histogram(one, BINS)
    values, times = levels(two)
    gaps = numpy.full(values.shape, numpy.nan)
    x, y = (numpy.stack(ends, 1).ravel() for ends in ([values, values, gaps], [0 * times, times, gaps]))
    unnamed = {"name": None, "legendgroup": None, "showlegend": False}
    bars = {**unnamed, "width": edges[1] - edges[0], "marker": {"color": COLOURS[0]}}
    tips = {**unnamed, "line": None, "marker": {"color": COLOURS[1], "symbol": "diamond", "size": 7}}
    return chart(
        [
            Series("", (edges[1:] + edges[:-1]) / 2, counts, "", "around %{x:.3f}: %{y}", mode="bars", more=bars),
            reference(x, y, panel=1, color=COLOURS[1]),
            Series("", values, times, "", "%{x:.6f}: %{y} times", 1, mode="markers", more=tips),
        ],
        panels=["shortcuts of depth 1: histogram", "shortcuts of depth 2: how often each eigenvalue is there"],
        columns=1,
        x=[{}, axis("eigenvalue of the Hessian")],
        y=axis("count", rangemode="tozero"),
        height=520,
        shared_xaxes=True,
        vertical_spacing=0.16,
    )


def zero_stationarity(dataset: xarray.Dataset) -> Any:
    """|L(t u) - L(0)| against t, one curve per shortcut depth, where it is above rounding.

    dataset: `change` (n, t), relative to the loss at zero, and `slope` (n).
    """
    seen = dataset.assign(change=dataset["change"].where(dataset["change"] > dataset.attrs["lowest"]))
    return chart(
        [
            Series(
                f"n = {n}, slope {float(data['slope']):.3f}",
                data["t"],
                data["change"],
                "t = %{x:.3g}: %{y:.4g}",
                f"n = {n}",
            )
            for n, data in members(seen, "n")
        ],
        x=axis("distance t from zero weights", log=True),
        y=axis("|L(t u) - L(0)| / L(0)", log=True),
        height=480,
    )


def small_norms(dataset: xarray.Dataset) -> Any:
    """Largest norm times the square root of R against R, one panel per arrangement; its limit and its bound.

    dataset: `largest`, `bound` and `units` (arrangement, steps), `limit` (arrangement).
    """
    root = dataset["units"] ** 0.5
    shown = {
        "largest |W|": dataset["largest"] * root,
        "its limit": dataset["limit"].broadcast_like(root),
        "the bound": dataset["bound"] * root,
    }
    names = names_of(dataset, "arrangement")
    return chart(
        [
            Series(
                title,
                dataset["units"].sel(arrangement=name),
                values.sel(arrangement=name),
                "R = %{x}: %{y:.5g}",
                panel=panel,
                mode="lines" if title == "its limit" else "lines+markers",
                size=8,
            )
            for panel, name in enumerate(names)
            for title, values in shown.items()
        ],
        panels=names,
        x=axis("units R", log=True),
        y=titled_first("norm times the root of R", len(names), rangemode="tozero"),
        height=440,
        horizontal_spacing=0.08,
    )


def error_growth(dataset: xarray.Dataset) -> Any:
    """Errors end to end against the decades by which they are predicted to grow, one point per distance rho.

    dataset: `composed`, `exact`, `by_unit` and `growth` (rho).
    """
    shown = {"composed": "float64, end to end", "by_unit": "float64, unit by unit", "exact": "long arithmetic"}
    errors = dataset.assign({key: numpy.maximum(dataset[key], SMALLEST) for key in shown})
    span = numpy.array([dataset["growth"].values.min(), dataset["growth"].values.max()])
    hover = "{name}: %{y:.2e}<br>predicted growth: %{x:.1f} decades"
    return chart(
        [
            reference(span, ROUNDING * 10**span, "rounding, grown as predicted"),
            *lines(errors, "growth", shown, hover, text="rho = {rho:g}", heading="%{text}", size=8),
        ],
        x=axis("predicted growth of errors, in decades"),
        y=axis("largest error of the output", log=True),
        height=480,
    )
