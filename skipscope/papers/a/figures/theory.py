"""States on a line, and free Jacobians: what the theorems of Residual Alignment look like."""

from __future__ import annotations

from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart, lines, reference, thin_lines
from skipscope.report.style import GREY, members

CURVE_POINTS = 100
LOWEST = 1e-16  # an error that is drawn as it is; smaller ones, and 0, here


def line_states(dataset: xarray.Dataset) -> Any:
    """States in the plane of u and h_1, and those of the printed formula; one panel per slope of 1/s_i.

    dataset: `state` and `printed` (slope, k, axis), `variation` (slope).
    """
    slopes, names = dict(members(dataset, "slope")), [f"h_{k}" for k in dataset["k"].values]
    hover = "{name}<br>along u %{x:.4g}, across %{y:.4g}"
    return chart(
        [
            Series(title, points.sel(axis="along u"), points.sel(axis="across"), hover, "%{text}", panel, text=names)
            for panel, data in enumerate(slopes.values())
            for title, points in {"states": data["state"], "printed formula": data["printed"]}.items()
        ],
        panels=[f"slope {slope:g}: step CoV {float(data['variation']):.2g}" for slope, data in slopes.items()],
        x=axis("along u"),
        y=[axis("orthogonal to u")],
        height=420,
        horizontal_spacing=0.06,
        shared_yaxes=True,
    )


def line_growth(dataset: xarray.Dataset) -> Any:
    """Growth exponent and variation of steps against the slope of 1/s_i, one marker per offset.

    dataset: `slope`, `offset`, `exponent` and `variation` (case).
    """
    slopes = dataset["slope"].values
    curve = numpy.linspace(slopes.min(), slopes.max(), CURVE_POINTS)
    panels = {"exponent": ("markers", "exponent %{y:.4g}"), "variation": ("lines+markers", "step CoV %{y:.4g}")}
    return chart(
        [
            reference(curve, 1 / curve, "1 / slope"),
            *(
                Series(
                    f"offset {offset:g}", data["slope"], data[key], hover, "slope %{x:g}, {name}", panel, None, mode, 8
                )
                for offset, data in members(dataset.sortby("offset"), "offset")
                for panel, (key, (mode, hover)) in enumerate(panels.items())
            ),
        ],
        panels=["growth of states", "variation of steps"],
        x=axis("slope of 1 / s_i"),
        y=[axis("exponent of k"), axis("deviation / mean")],
        height=420,
        horizontal_spacing=0.12,
    )


def jacobian_values(dataset: xarray.Dataset) -> Any:
    """Top singular values by unit at the lowest run of each problem, one panel per weight, one colour per loss.

    dataset: `top` (case, unit), `loss`, `weight`, `depth` and `size` (case).
    """
    widest = dataset.isel(case=dataset["size"].values == dataset["size"].values.max())
    weights = numpy.unique(widest["weight"].values).tolist()
    series = []
    for place in range(widest.sizes["case"]):
        data = widest.isel(case=place)
        depth, panel = int(data["depth"]), weights.index(float(data["weight"]))
        heading = f"{{name}}, L = {depth}"
        units = numpy.arange(1, depth + 1)
        series.append(
            Series(str(data["loss"].item()), units, data["top"][:depth], "unit %{x}: s %{y:.8g}", heading, panel)
        )
    return chart(
        series,
        panels=[f"penalty {weight:g}" for weight in weights],
        x=axis("unit"),
        y=[axis("top singular value", rangemode="tozero")],
        height=440,
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )


def jacobian_invariant(dataset: xarray.Dataset) -> Any:
    """|w|^2 against the top singular value of the Jacobians, one point per problem, on the curve s (1 + s).

    dataset: `w_square` (case, start), `top` (case, unit), `loss`, `weight`, `depth` and `size` (case).
    """
    points = dataset.assign(s=dataset["top"].mean("unit"), w=dataset["w_square"].isel(start=0))
    curve = numpy.linspace(0, 1.05 * points["s"].values.max(), CURVE_POINTS)
    text, hover = "D = {size:g}, L = {depth:g}, penalty {weight:g}", "%{text}<br>s %{x:.6g}, |w|² %{y:.6g}"
    return chart(
        [
            reference(curve, curve * (1 + curve), "s (1 + s)"),
            *lines(points, "s", "w", hover, by="loss", text=text, mode="markers", size=8),
        ],
        x=axis("singular value s of the Jacobians", rangemode="tozero"),
        y=axis("|w|²", rangemode="tozero"),
        height=440,
    )


def logit_errors(dataset: xarray.Dataset) -> Any:
    """Relative error of the linearised logit against the distance from the boundary, samples thin, median thick.

    dataset: `error` (share, sample).
    """
    share, errors = dataset["share"], numpy.maximum(dataset["error"].values, LOWEST)
    hover = "%{x:g} of the distance: %{y:.3g}"
    samples = {f"sample {number}": row for number, row in enumerate(errors.T)}
    return chart(
        [
            *thin_lines("samples", share, samples, hover, line={"color": GREY, "width": 0.7}, meta=None),
            Series("median", share, numpy.median(errors, 1), hover, place=0, size=8, width=3),
        ],
        x=axis("share of the way from the boundary to the sample", type="log"),
        y=axis("relative error", log=True),
        height=440,
    )
