"""The theorems of Rethinking the role of skip connections, as they were checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skipscope.papers.c.figures.theory import (
    approximation_errors,
    collapse_by_layer,
    plain_accuracies,
    product_conditions,
)
from skipscope.report.table import Table, number, rows_of
from skipscope.report.views.view import Picture, View

if TYPE_CHECKING:
    import xarray

STUDY = ("C.theorems",)

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
    "Train accuracy of PlainNets of {depth} layers on {data} after {epochs} epochs, by learning rate, one marker a "
    "seed. The paper posits (section 6.5 b) that PlainNets train if the singular values of their weights are nearly "
    "equal, as those of orthogonal weights are."
)


def products_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    parts = {str(data.attrs["part"]): data for data in datasets.values()}
    tables = [show(parts[name]) for name, show in TABLES.items() if name in parts]
    figures = {}
    if "collapse" in parts:
        figures["collapse-by-layer"] = Picture(COLLAPSE, collapse_by_layer(parts["collapse"]), STUDY)
    if "approximation" in parts:
        figures["approximation-16"] = Picture(APPROXIMATION, approximation_errors(parts["approximation"]), STUDY)
    if "products" in parts:
        figures["product-conditions"] = Picture(PRODUCTS, product_conditions(parts["products"]), STUDY)
    if "training" in parts:
        data = parts["training"]
        caption = ACCURACIES.format(**{key: data.attrs[key] for key in ("depth", "data", "epochs")})
        figures["plain-accuracies"] = Picture(caption, plain_accuracies(data), STUDY)
    return View(tables, figures, _sentences(parts))


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


# -- commuting weights


def _sums(data: xarray.Dataset) -> Table:
    rows = []
    for kind in dict.fromkeys(data["kind"].values.tolist()):
        errors = data["error"].values[data["kind"].values == kind]
        rows.append([str(kind), str(len(errors)), number(float(errors.max()))])
    about = (
        f"Theorems 1 to 3 before their approximations: {data.attrs['layers']} layers of commuting weights, the sum "
        "over eigenvectors against dense weights, layer by layer; relative, the worst of all draws."
    )
    return Table("Exact sums", ["network", "draws", "error"], rows, about)


def _collapse(data: xarray.Dataset) -> Table:
    rows = []
    for case in data["case"].values:
        here = data.sel(case=case)
        last = here.isel(layer=-1)
        values = (
            here["ratio"].max(),
            last["cosine"].median(),
            last["cosine"].min(),
            last["colinear"].median(),
        )
        rows.append([str(case), *(number(float(value)) for value in values)])
    about = (
        f"{data.sizes['layer']} layers without skips, {data.sizes['draw']} draws. Ratio: second over first "
        "|eigenvalue| of a layer, the largest. The last column is for two inputs."
    )
    columns = ["weights", "ratio", "median |cos(h, v_1)|", "smallest", "median |cos(h, h')|"]
    return Table("Theorem 1, and its conditions", columns, rows, about)


def _powers(data: xarray.Dataset) -> Table:
    columns = {
        "ratio": "ratio",
        "index": "product, l an index",
        "power": "product, l a power",
        "cosine": "cosine",
        "cosine_by_power": "cosine, l a power",
    }
    about = (
        f"The product of (lambda_i / lambda_1)^l over {data.attrs['layers']} layers in equation 14, for a ratio that "
        "is the same in all. l is the layer's index; as a power it would promise a collapse that is not there."
    )
    return Table("Theorem 1: index or power", list(columns.values()), rows_of(data, columns), about)


def _approximation(data: xarray.Dataset) -> Table:
    columns = {
        "signs": "signs",
        "scale": "largest |eigenvalue|",
        "bounded": "error, to the longer",
        "error": "error, to the state",
        "cosine": "|cos(h, v_1)|",
        "log10_condition": "log10 cond",
        "log10_condition_plain": "without skips",
    }
    about = (
        f"Theorem 2 with {data.attrs['layers']} layers: medians over draws of the relative error of approximation 16, "
        "relative to the longer of state and approximation, and to the state; and condition numbers of the whole map."
    )
    return Table("Approximation 16", list(columns.values()), rows_of(data, columns, names=2), about, names=2)


def _paths(data: xarray.Dataset) -> Table:
    rows = []
    for kind in dict.fromkeys(data["kind"].values.tolist()):
        here = data.isel(case=data["kind"].values == kind)
        values = (here[key].median() for key in ("ratio", "ratio_of_sums", "cosine", "bounded"))
        rows.append([str(kind), *(number(float(value)) for value in values)])
    about = (
        f"Theorem 3 with {data.attrs['paths']} paths. In every path the first eigenvalue leads; where paths cancel, "
        "that of their sum does not, and approximation 22 is about the wrong direction. Medians over draws."
    )
    columns = ["sums over paths", "ratio in a path", "ratio of sums", "|cos(h, v_1)|", "error"]
    return Table("Theorem 3: paths", columns, rows, about)


# -- random matrices


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


def _moments(data: xarray.Dataset) -> Table:
    columns = {
        "c": "c",
        "moment": "moment",
        "measured": "measured",
        "formula": "limit",
        "log10_condition": "log10 cond",
    }
    about = (
        f"Squared singular values of {data.attrs['units']} units of width {data.attrs['width']} whose branches have "
        "the variance c in all, whatever the number of units: their moments, and those of the limit (Tarnowski et al.)."
    )
    return Table("Branches that shrink with depth", list(columns.values()), rows_of(data, columns, names=2), about, 2)


def _singularity(data: xarray.Dataset) -> Table:
    columns = {
        "entries": "entries",
        "size": "size",
        "draws": "draws",
        "singular": "singular",
        "smallest": "smallest singular value",
    }
    about = "Proposition 1: decided without rounding, by determinants modulo a prime and by rational arithmetic."
    return Table("Singular matrices", list(columns.values()), rows_of(data, columns, names=2), about, names=2)


# -- proposition 3, gradients, training


def _perturbations(data: xarray.Dataset) -> Table:
    columns = {
        "kind": "changes",
        "condition": "cond",
        "size": "eps",
        "ratio": "largest ratio",
        "first_order": "to first order",
        "largest": "1 / (1 - cond eps)",
        "residual": "residual",
    }
    about = (
        "Proposition 3: |dW| / |W| over cond |dX| / |X|, with the changed problem solved, the largest of all draws. "
        "Changes at random; the worst for the weights; the worst with the worst weights (aligned); and with targets "
        "that the weights do not fit, where the proposition says nothing."
    )
    return Table("Errors in the inputs", list(columns.values()), rows_of(data, columns), about)


def _ranks(data: xarray.Dataset) -> Table:
    rows = []
    for place in range(data.sizes["case"]):
        here = data.isel(case=place)
        counts = [number(float(here[key])) for key in ("input_rank", "errors", "states", "gradients")]
        rows.append(
            [
                "with" if bool(here["skips"]) else "without",
                *counts,
                "yes" if bool(here["bounded"]) else "no",
                number(float(here["autograd"])),
                number(float(here["equation_23"])),
            ]
        )
    about = (
        f"Linear networks of {data.attrs['layers']} layers of width {data.attrs['width']}: smallest ranks over layers "
        "of errors, states and gradients, whether no gradient has a larger rank than its error and its state, "
        "gradients against automatic differentiation, and errors by equation 23 against the true ones. Lemma 3 has the "
        f"counter-example [1 0] [0 1]^T, of rank {data.attrs['lemma3']}."
    )
    columns = ["skips", "rank of inputs", "errors", "states", "gradients", "bounded", "autograd", "equation 23"]
    return Table("Ranks of gradients", columns, rows, about)


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
        "best learning rate of each seed."
    )
    columns = ["network", "seeds", "train accuracy", "lowest", "highest", "best learning rate"]
    title = "PlainNets kept orthogonal" if data.attrs["part"] == "kept" else "PlainNets with equal singular values"
    return Table(title, columns, rows, about)


TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "sums": _sums,
    "collapse": _collapse,
    "powers": _powers,
    "approximation": _approximation,
    "paths": _paths,
    "products": _products,
    "moments": _moments,
    "singularity": _singularity,
    "perturbations": _perturbations,
    "ranks": _ranks,
    "training": _training,
    "kept": _training,
}
