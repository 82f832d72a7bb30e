"""States on a line, and free Jacobians: what the theorems of Residual Alignment look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.figures.style import COLOURS, GREY, look, styled

if TYPE_CHECKING:
    import xarray

CURVE_POINTS = 100
LOWEST = 1e-16  # an error that is drawn as it is; smaller ones, and 0, here


def line_states(dataset: xarray.Dataset) -> Any:
    """States in the plane of u and h_1, one panel a slope of 1/s_i; those of the printed formula besides.

    dataset: `state` and `printed` (slope, k, axis), `variation` (slope).
    """
    from plotly.subplots import make_subplots

    slopes = [float(slope) for slope in dataset["slope"].values]
    titles = [f"slope {slope:g}: step CoV {float(dataset['variation'].sel(slope=slope)):.2g}" for slope in slopes]
    figure = make_subplots(1, len(slopes), subplot_titles=titles, horizontal_spacing=0.06, shared_yaxes=True)
    for panel, slope in enumerate(slopes):
        for place, (key, title) in enumerate({"state": "states", "printed": "printed formula"}.items()):
            points = dataset[key].sel(slope=slope)
            figure.add_scatter(
                x=points.sel(axis="along u").values,
                y=points.sel(axis="across").values,
                text=[f"h_{k}" for k in dataset["k"].values],
                mode="lines+markers",
                showlegend=panel == 0,
                **look(title, place),
                hovertemplate=f"%{{text}}<br>{title}<br>along u %{{x:.4g}}, across %{{y:.4g}}<extra></extra>",
                row=1,
                col=panel + 1,
            )
    figure.update_xaxes(title_text="along u")
    figure.update_yaxes(title_text="orthogonal to u", row=1, col=1)
    return styled(figure, height=420)


def line_growth(dataset: xarray.Dataset) -> Any:
    """Growth exponent and variation of steps against the slope of 1/s_i, one marker an offset.

    dataset: `slope`, `offset`, `exponent` and `variation` (case).
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, subplot_titles=["growth of states", "variation of steps"], horizontal_spacing=0.12)
    slopes = dataset["slope"].values
    curve = numpy.linspace(slopes.min(), slopes.max(), CURVE_POINTS)
    grey = {"color": GREY, "width": 1}
    figure.add_scatter(x=curve, y=1 / curve, mode="lines", line=grey, name="1 / slope", hoverinfo="skip", row=1, col=1)
    for place, offset in enumerate(numpy.unique(dataset["offset"].values)):
        data = dataset.isel(case=dataset["offset"].values == offset)
        for panel, (key, words) in enumerate({"exponent": "exponent", "variation": "step CoV"}.items()):
            figure.add_scatter(
                x=data["slope"].values,
                y=data[key].values,
                mode="markers" if panel == 0 else "lines+markers",
                showlegend=panel == 0,
                **look(f"offset {offset:g}", place, size=8),
                hovertemplate=f"slope %{{x:g}}, offset {offset:g}<br>{words} %{{y:.4g}}<extra></extra>",
                row=1,
                col=panel + 1,
            )
    figure.update_xaxes(title_text="slope of 1 / s_i")
    figure.update_yaxes(title_text="exponent of k", row=1, col=1)
    figure.update_yaxes(title_text="deviation / mean", row=1, col=2)
    return styled(figure, height=420)


def jacobian_values(dataset: xarray.Dataset) -> Any:
    """Top singular values by unit at the lowest run of each problem, one panel a weight, one colour a loss.

    dataset: `top` (case, unit), `loss`, `weight`, `depth` and `size` (case).
    """
    from plotly.subplots import make_subplots

    widest = dataset.isel(case=dataset["size"].values == dataset["size"].values.max())
    weights, losses = numpy.unique(widest["weight"].values), list(dict.fromkeys(widest["loss"].values.tolist()))
    titles = [f"penalty {weight:g}" for weight in weights]
    figure = make_subplots(1, len(weights), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    shown = set()
    for place in range(widest.sizes["case"]):
        data = widest.isel(case=place)
        loss, depth = str(data["loss"].item()), int(data["depth"])
        figure.add_scatter(
            x=numpy.arange(1, depth + 1),
            y=data["top"].values[:depth],
            mode="lines+markers",
            showlegend=loss not in shown,
            **look(loss, losses.index(loss)),
            hovertemplate=f"{loss}, L = {depth}<br>unit %{{x}}: s %{{y:.8g}}<extra></extra>",
            row=1,
            col=int(numpy.flatnonzero(weights == float(data["weight"]))[0]) + 1,
        )
        shown.add(loss)
    figure.update_xaxes(title_text="unit")
    figure.update_yaxes(title_text="top singular value", rangemode="tozero", row=1, col=1)
    return styled(figure, height=440)


def jacobian_invariant(dataset: xarray.Dataset) -> Any:
    """|w|^2 against the top singular value of the Jacobians, one point a problem, on the curve s (1 + s).

    dataset: `w_square` (case, start), `top` (case, unit), `loss`, `weight`, `depth` and `size` (case).
    """
    import plotly.graph_objects as go

    s = dataset["top"].mean("unit").values
    curve = numpy.linspace(0, 1.05 * s.max(), CURVE_POINTS)
    figure = go.Figure()
    grey = {"color": GREY, "width": 1}
    figure.add_scatter(x=curve, y=curve * (1 + curve), mode="lines", line=grey, name="s (1 + s)", hoverinfo="skip")
    for place, loss in enumerate(dict.fromkeys(dataset["loss"].values.tolist())):
        chosen = dataset["loss"].values == loss
        data = dataset.isel(case=chosen)
        figure.add_scatter(
            x=s[chosen],
            y=data["w_square"].isel(start=0).values,
            text=[
                f"D = {int(one['size'])}, L = {int(one['depth'])}, penalty {float(one['weight']):g}"
                for one in (data.isel(case=number) for number in range(data.sizes["case"]))
            ],
            mode="markers",
            **look(str(loss), place, size=8),
            hovertemplate=f"{loss}<br>%{{text}}<br>s %{{x:.6g}}, |w|² %{{y:.6g}}<extra></extra>",
        )
    figure.update_xaxes(title_text="singular value s of the Jacobians", rangemode="tozero")
    figure.update_yaxes(title_text="|w|²", rangemode="tozero")
    return styled(figure, height=440)


def logit_errors(dataset: xarray.Dataset) -> Any:
    """Relative error of the linearised logit against the distance from the boundary, samples thin, median thick.

    dataset: `error` (share, sample).
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    shares = dataset["share"].values
    errors = numpy.maximum(dataset["error"].values, LOWEST)
    for number in range(errors.shape[1]):
        figure.add_scatter(
            x=shares,
            y=errors[:, number],
            mode="lines",
            line={"color": GREY, "width": 0.7},
            name="samples",
            legendgroup="samples",
            showlegend=number == 0,
            hovertemplate=f"sample {number}<br>%{{x:g}} of the distance: %{{y:.3g}}<extra></extra>",
        )
    figure.add_scatter(
        x=shares,
        y=numpy.median(errors, 1),
        mode="lines+markers",
        line={"color": COLOURS[0], "width": 3},
        marker={"color": COLOURS[0], "size": 8},
        name="median",
        hovertemplate="median<br>%{x:g} of the distance: %{y:.3g}<extra></extra>",
    )
    figure.update_xaxes(type="log", title_text="share of the way from the boundary to the sample")
    figure.update_yaxes(type="log", exponentformat="power", title_text="relative error")
    return styled(figure, height=440)
