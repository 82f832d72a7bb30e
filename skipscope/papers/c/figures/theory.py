"""Products of many weights: what the theorems of Rethinking the role of skip connections look like."""

from __future__ import annotations

from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart, lines
from skipscope.report.style import GREY, members

LOWEST = 1e-10  # an error that is drawn as it is; smaller ones here


def collapse_by_layer(dataset: xarray.Dataset) -> Any:
    """Cosines by layer, medians over draws, one curve per case: of state and v_1, and of the states of two inputs.

    dataset: `cosine` and `colinear` (case, draw, layer).
    """
    panels = {"cosine": "state and leading eigenvector", "colinear": "states of two inputs"}
    medians = dataset[list(panels)].median("draw")
    return chart(
        lines(medians, "layer", panels, "layer %{x}: |cos| %{y:.4f}", by="case", mode="lines"),
        panels=list(panels.values()),
        x={},
        y=[axis("|cosine|", range=[0, 1.05])],
        height=420,
        horizontal_spacing=0.06,
        shared_yaxes=True,
        x_title="layer",
    )


def approximation_errors(dataset: xarray.Dataset) -> Any:
    """Error of approximation 16 against the size of the eigenvalues, one curve per choice of signs.

    dataset: `signs`, `scale`, `bounded`, `cosine` and `log10_condition` (case).
    """
    hover = "{name}, up to %{x:g}<br>error %{y:.3g}<br>"
    hover += "|cos(h, v_1)| %{customdata[0]:.4f}, log10 cond %{customdata[1]:.3g}"
    shown = dataset.assign(error=numpy.maximum(dataset["bounded"], LOWEST))
    return chart(
        lines(shown, "scale", "error", hover, by="signs", custom=("cosine", "log10_condition"), heading="", size=8),
        x=axis("largest |eigenvalue|", type="log"),
        y=axis("relative error", log=True),
        height=440,
    )


def product_conditions(dataset: xarray.Dataset) -> Any:
    """log10 cond by the number of units, medians over draws, one curve per scale: true, and as float64 computes it.

    dataset: `log10_condition` and `float64` (scale, draw, units), `log10_condition_plain` and `float64_plain` (draw,
    units).
    """
    panels = {"log10_condition": "of the exact product", "float64": "of the product in float64"}
    curves = {"without skips": {key: dataset[f"{key}_plain"] for key in panels}}
    curves |= {f"s = {scale:g}": {key: data[key] for key in panels} for scale, data in members(dataset, "scale")}
    figure = chart(
        [
            Series(title, dataset["units"], values.median("draw"), "log10 cond %{y:.3f}", "{name}, %{x} units", panel)
            for title, pair in curves.items()
            for panel, values in enumerate(pair.values())
        ],
        panels=list(panels.values()),
        x=axis(type="log"),
        y=[axis("log10 cond", rangemode="tozero")],
        height=440,
        horizontal_spacing=0.08,
        x_title="units",
    )
    infinity = float(dataset.attrs["numerical_infinity"])
    return figure.add_hline(y=infinity, line={"color": GREY, "width": 1, "dash": "dash"}, row="all", col="all")


def plain_accuracies(dataset: xarray.Dataset) -> Any:
    """Train accuracies against the learning rate, one marker per seed, one colour per network.

    dataset: `train_accuracy` (network, rate, seed).
    """
    hover = "learning rate %{x:g}: %{y:.1%} right"
    return chart(
        [
            Series(network, flat["rate"], flat["train_accuracy"], hover, mode="markers", size=9)
            for network, data in members(dataset, "network")
            for flat in [data.dropna("seed", how="all", subset=["train_accuracy"]).stack(run=("seed", "rate"))]
        ],
        x=axis("learning rate", type="log"),
        y=axis("train accuracy", range=[0, 1.02], tickformat=".0%"),
        height=440,
    )
