"""Products of many weights: what the theorems of Rethinking the role of skip connections look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.figures.style import GREY, look, styled

if TYPE_CHECKING:
    import xarray

LOWEST = 1e-10  # an error that is drawn as it is; smaller ones here


def collapse_by_layer(dataset: xarray.Dataset) -> Any:
    """Cosines by layer, medians over draws, one curve a case: of state and v_1, and of the states of two inputs.

    dataset: `cosine` and `colinear` (case, draw, layer).
    """
    from plotly.subplots import make_subplots

    panels = {"cosine": "state and leading eigenvector", "colinear": "states of two inputs"}
    figure = make_subplots(
        1, 2, subplot_titles=list(panels.values()), horizontal_spacing=0.06, shared_yaxes=True, x_title="layer"
    )
    for place, case in enumerate(dataset["case"].values):
        for panel, key in enumerate(panels):
            figure.add_scatter(
                x=dataset["layer"].values,
                y=dataset[key].sel(case=case).median("draw").values,
                mode="lines",
                showlegend=panel == 0,
                **look(str(case), place),
                hovertemplate=f"{case}<br>layer %{{x}}: |cos| %{{y:.4f}}<extra></extra>",
                row=1,
                col=panel + 1,
            )
    figure.update_yaxes(title_text="|cosine|", range=[0, 1.05], row=1, col=1)
    return styled(figure, height=420)


def approximation_errors(dataset: xarray.Dataset) -> Any:
    """Error of approximation 16 against the size of the eigenvalues, one curve a choice of signs.

    dataset: `signs`, `scale`, `bounded`, `cosine` and `log10_condition` (case).
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, signs in enumerate(dict.fromkeys(dataset["signs"].values.tolist())):
        data = dataset.isel(case=dataset["signs"].values == signs)
        figure.add_scatter(
            x=data["scale"].values,
            y=numpy.maximum(data["bounded"].values, LOWEST),
            customdata=numpy.stack([data["cosine"].values, data["log10_condition"].values], 1),
            mode="lines+markers",
            **look(str(signs), place, size=8),
            hovertemplate=(
                f"{signs}, up to %{{x:g}}<br>error %{{y:.3g}}<br>|cos(h, v_1)| %{{customdata[0]:.4f}}, "
                "log10 cond %{customdata[1]:.3g}<extra></extra>"
            ),
        )
    figure.update_xaxes(type="log", title_text="largest |eigenvalue|")
    figure.update_yaxes(type="log", exponentformat="power", title_text="relative error")
    return styled(figure, height=440)


def product_conditions(dataset: xarray.Dataset) -> Any:
    """log10 cond by the number of units, medians over draws, one curve a scale: true, and as float64 computes it.

    dataset: `log10_condition` and `float64` (scale, draw, units), `log10_condition_plain` and `float64_plain` (draw,
    units).
    """
    from plotly.subplots import make_subplots

    titles = ["of the exact product", "of the product in float64"]
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.08, x_title="units")
    curves = {"without skips": (dataset["log10_condition_plain"], dataset["float64_plain"])}
    for scale in dataset["scale"].values:
        curves[f"s = {scale:g}"] = (dataset["log10_condition"].sel(scale=scale), dataset["float64"].sel(scale=scale))
    for place, (title, pair) in enumerate(curves.items()):
        for panel, values in enumerate(pair):
            figure.add_scatter(
                x=dataset["units"].values,
                y=values.median("draw").values,
                mode="lines+markers",
                showlegend=panel == 0,
                **look(title, place),
                hovertemplate=f"{title}, %{{x}} units<br>log10 cond %{{y:.3f}}<extra></extra>",
                row=1,
                col=panel + 1,
            )
    infinity = float(dataset.attrs["numerical_infinity"])
    figure.add_hline(y=infinity, line={"color": GREY, "width": 1, "dash": "dash"}, row="all", col="all")
    figure.update_xaxes(type="log")
    figure.update_yaxes(title_text="log10 cond", rangemode="tozero", row=1, col=1)
    return styled(figure, height=440)


def plain_accuracies(dataset: xarray.Dataset) -> Any:
    """Train accuracies against the learning rate, one marker a seed, one colour a network.

    dataset: `train_accuracy` (network, rate, seed).
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, network in enumerate(dataset["network"].values):
        found = dataset["train_accuracy"].sel(network=network).dropna("seed", how="all").transpose("seed", "rate")
        figure.add_scatter(
            x=numpy.tile(dataset["rate"].values, found.sizes["seed"]),
            y=found.values.ravel(),
            mode="markers",
            **look(str(network), place, size=9),
            hovertemplate=f"{network}<br>learning rate %{{x:g}}: %{{y:.1%}} right<extra></extra>",
        )
    figure.update_xaxes(type="log", title_text="learning rate")
    figure.update_yaxes(title_text="train accuracy", range=[0, 1.02], tickformat=".0%")
    return styled(figure, height=440)
