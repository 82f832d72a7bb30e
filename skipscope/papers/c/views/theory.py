"""The theorems of Rethinking the role of skip connections, as they were checked: pictures, tables, sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart, lines
from skipscope.report.style import GREY, members
from skipscope.report.table import Table, TableOf, either, number
from skipscope.report.views.view import PictureOf, ViewOfParts

LOWEST = 1e-10  # an error that is drawn as it is; smaller ones here
COLLAPSE = (
    "How a PlainNet's state turns to the leading eigenvector, layer by layer; medians over draws. The paper (Oyedotun, "
    "Al Ismaeil, Aouada, theorem 1) states that it does if |lambda_1| > |lambda_i| in every layer. It takes the same "
    "direction in every layer and a gap that does not close. Weights that do not commute make the states of different "
    "inputs alike too, but along no eigenvector."
)
APPROXIMATION = (
    "Relative error of approximation 16 (theorem 2), relative to the longer of state and approximation, against the "
    "size of the eigenvalues, for four choices of their signs; |lambda_1| is the largest throughout. It is small where "
    "the residual network itself collapses onto v_1, or where it does nothing; elsewhere it is near 1."
)
PRODUCTS = (
    "log10 cond of products of units I + s W2 W1 with random weights of He's variance, and of W2 W1 without skips; "
    "medians over draws. Left: of the exact product, right: of what float64 computes, which says little above the "
    "dashed line, 1 / (eps n). The paper concludes that skips keep states well conditioned; that takes branches far "
    "smaller than He's, and all curves keep rising with depth."
)
ACCURACIES = (
    "Train accuracy of PlainNets of {depth} layers on {data} after {epochs} epochs, by learning rate, one marker per "
    "seed. The paper posits (section 6.5 b) that PlainNets train if the singular values of their weights are nearly "
    "equal, as those of orthogonal weights are."
)


# -- pictures


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


# -- sentences


def _sentences(parts: Mapping[str, xarray.Dataset]) -> list[str]:
    found = []
    if "approximation" in parts and "sums" in parts:
        errors = parts["approximation"]["bounded"]
        found.append(
            f"The exact sums of theorems 1 to 3 hold to {number(float(parts['sums']['error'].max()))}; approximation "
            f"16 is off by more than 10 % in {int((errors > 0.1).sum())} of {errors.size} cases."
        )
    if "products" in parts:
        data = parts["products"].isel(units=-1)
        skips = data["log10_condition"].median("draw")
        found.append(
            f"After {int(data['units'])} units log10 cond is {number(float(data['log10_condition_plain'].median()))} "
            f"without skips, {number(float(skips.sel(scale=1.0)))} with skips at He's scale and "
            f"{number(float(skips.sel(scale=0.1)))} at a tenth of it."
        )
    return found


def _at_the_end(key: str, reduction: str) -> Callable[[xarray.Dataset], str]:
    """Of the last layer."""
    return lambda here: number(float(getattr(here[key].isel(layer=-1), reduction)()))


def _products(data: xarray.Dataset) -> Table:
    rows = []
    for units in data["units"].values:
        here = data.sel(units=units)
        for scale in (None, *data["scale"].values):
            if scale is None:
                values = [here["log10_condition_plain"].median(), here["float64_plain"].median()]
                predicted = ["-", "-"]
            else:
                one = here.sel(scale=scale)
                values = [one["log10_condition"].median(), one["float64"].median()]
                predicted = [number(float(one[key])) for key in ("predicted_short", "predicted_long")]
            title = "without skips" if scale is None else f"{scale:g}"
            rows.append([str(units), title, *(number(float(value)) for value in values), *predicted])
    about = (
        f"Products of units I + s W2 W1 of width {data.attrs['width']}, medians over {data.sizes['draw']} draws. "
        f"Beyond {data.attrs['numerical_infinity']:.1f} float64 cannot tell; exact products can be far beyond. "
        "Predictions are for small branches: for c = 4 s^2 L below 1, and for the growth of very long products."
    )
    columns = ["units", "s", "log10 cond", "in float64", "short", "long"]
    return Table("Products of random matrices", columns, rows, about, names=2)


def _training(data: xarray.Dataset) -> Table:
    rows = []
    for network in data["network"].values:
        best = data["train_accuracy"].sel(network=network).dropna("seed", how="all")
        values = best.max("rate")
        rates = data["rate"].values[best.mean("seed").argmax("rate").item()]
        cells = (float(values.mean()), float(values.min()), float(values.max()), float(rates))
        rows.append([str(network), str(values.sizes["seed"]), *map(number, cells)])
    about = (
        f"PlainNets of {data.attrs['depth']} layers on {data.attrs['data']}, {data.attrs['epochs']} epochs, at the "
        "best learning rate of a calibration seed."
    )
    columns = ["network", "seeds", "train accuracy", "lowest", "highest", "learning rate"]
    title = "PlainNets kept orthogonal" if data.attrs["part"] == "kept" else "PlainNets with equal singular values"
    return Table(title, columns, rows, about)


PICTURES = {
    "collapse-by-layer": PictureOf("collapse", COLLAPSE, collapse_by_layer),
    "approximation-16": PictureOf("approximation", APPROXIMATION, approximation_errors),
    "product-conditions": PictureOf("products", PRODUCTS, product_conditions),
    "plain-accuracies": PictureOf("training", ACCURACIES, plain_accuracies),
}
TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "sums": TableOf(
        "Exact sums",
        {"draws": lambda here: str(here["error"].size), "error": ("error", "max")},
        "Theorems 1 to 3 before their approximations: {layers} layers of commuting weights, the sum over eigenvectors "
        "against dense weights, layer by layer; relative, the worst of all draws.",
        rows={"kind": "network"},
    ),
    "collapse": TableOf(
        "Theorem 1, and its conditions",
        {
            "ratio": ("ratio", "max"),
            "median |cos(h, v_1)|": _at_the_end("cosine", "median"),
            "smallest": _at_the_end("cosine", "min"),
            "median |cos(h, h')|": _at_the_end("colinear", "median"),
        },
        "{number_of_layer} layers without skips, {number_of_draw} draws. Ratio: second over first |eigenvalue| of a "
        "layer, the largest. The last column is for two inputs.",
        rows={"case": "weights"},
    ),
    "powers": TableOf(
        "Theorem 1: index or power",
        {
            "ratio": "ratio",
            "product, l an index": "index",
            "product, l a power": "power",
            "cosine": "cosine",
            "cosine, l a power": "cosine_by_power",
        },
        "The product of (lambda_i / lambda_1)^l over {layers} layers in equation 14, for a ratio that is the same in "
        "all. l is the layer's index; as a power it would promise a collapse that is not there.",
    ),
    "approximation": TableOf(
        "Approximation 16",
        {
            "signs": "signs",
            "largest |eigenvalue|": "scale",
            "error, to the longer": "bounded",
            "error, to the state": "error",
            "|cos(h, v_1)|": "cosine",
            "log10 cond": "log10_condition",
            "without skips": "log10_condition_plain",
        },
        "Theorem 2 with {layers} layers: medians over draws of the relative error of approximation 16, relative to the "
        "longer of state and approximation, and to the state; and condition numbers of the whole map.",
        names=2,
    ),
    "paths": TableOf(
        "Theorem 3: paths",
        {
            "ratio in a path": ("ratio", "median"),
            "ratio of sums": ("ratio_of_sums", "median"),
            "|cos(h, v_1)|": ("cosine", "median"),
            "error": ("bounded", "median"),
        },
        "Theorem 3 with {paths} paths. In every path the first eigenvalue leads; where paths cancel, that of their sum "
        "does not, and approximation 22 is about the wrong direction. Medians over draws.",
        rows={"kind": "sums over paths"},
    ),
    "products": _products,
    "moments": TableOf(
        "Branches that shrink with depth",
        {"c": "c", "moment": "moment", "measured": "measured", "limit": "formula", "log10 cond": "log10_condition"},
        "Squared singular values of {units} units of width {width} whose branches have the variance c in all, whatever "
        "the number of units: their moments, and those of the limit (Tarnowski et al.).",
        names=2,
    ),
    "singularity": TableOf(
        "Singular matrices",
        {
            "entries": "entries",
            "size": "size",
            "draws": "draws",
            "singular": "singular",
            "smallest singular value": "smallest",
        },
        "Proposition 1: decided without rounding, by determinants modulo a prime and by rational arithmetic.",
        names=2,
    ),
    "perturbations": TableOf(
        "Errors in the inputs",
        {
            "changes": "kind",
            "cond": "condition",
            "eps": "size",
            "largest ratio": "ratio",
            "to first order": "first_order",
            "1 / (1 - cond eps)": "largest",
            "residual": "residual",
        },
        "Proposition 3: |dW| / |W| over cond |dX| / |X|, with the changed problem solved, the largest of all draws. "
        "Changes at random; the worst for the weights; the worst with the worst weights (aligned); and with targets "
        "that the weights do not fit, where the proposition says nothing.",
    ),
    "ranks": TableOf(
        "Ranks of gradients",
        {
            "skips": either("skips", "with", "without"),
            "rank of inputs": "input_rank",
            "errors": "errors",
            "states": "states",
            "gradients": "gradients",
            "bounded": either("bounded"),
            "autograd": "autograd",
            "equation 23": "equation_23",
        },
        "Linear networks of {layers} layers of width {width}: smallest ranks over layers of errors, states and "
        "gradients, whether no gradient has a larger rank than its error and its state, gradients against automatic "
        "differentiation, and errors by equation 23 against the true ones. Lemma 3 has the counter-example "
        "[1 0] [0 1]^T, of rank {lemma3}.",
    ),
    "training": _training,
    "kept": _training,
}
products_view = ViewOfParts(TABLES, PICTURES, _sentences)
