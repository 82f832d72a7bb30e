"""Condition numbers of weights and states, ranks of gradients, Hessians of losses."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from skipscope.report.figures import conditioning, gradient_ranks, hessian
from skipscope.report.style import names_of
from skipscope.report.table import Table, estimate, number
from skipscope.report.views.view import (
    Picture,
    UnitNumbers,
    View,
    alike,
    counted,
    described,
    in_summary,
    named,
    networks_of,
    others_named,
    title_of,
    titles,
)

STATUS_IN_TABLE = {"infinite": "inf", "numerically infinite": "num. inf", "overflow": "overflow"}
INFINITE = "inf: a slice is zero throughout; num. inf: so large that rounding hides the smallest value."
WEIGHTS = (
    "Largest over smallest singular value: the largest over the modes of the weight's higher-order SVD, and of the "
    f"weight as a matrix, with its rank. {INFINITE}"
)
STATES = (
    "Of what enters a layer over {samples}, at last the output: the largest over the modes of channels and places, and "
    "of channels x (samples and places), with its rank. Zero: units or channels that are exactly zero for all samples. "
    f"A star: fewer samples and places than channels, which limits the rank. {INFINITE}"
)
GRADIENTS = (
    "Numerical ranks of the back-propagated error at a layer's output, of its input (of a convolution the patches "
    "under its kernel) and of the weight's gradient, their product, which is at most the smaller of the two."
)
ILL_CONDITIONED = 1e4  # from here on the summary says so
FIGURE = (
    "{title}, layer by layer: what enters a layer, then the output; and the weights. The largest over the modes. Marks "
    "on the dotted line are not finite: infinite (filled), numerically infinite (open), overflow (cross)."
)
RANKS = "{title}, layer by layer: rank over the largest that the matrix's shape allows."
HESSIAN = (
    "{title}: sizes of the eigenvalues of the loss's Hessian by rank, from the largest to the smallest, and how they "
    "are distributed. Open markers did not converge."
)
ABOUT_CURVATURE = (
    "Index: the share of negative eigenvalues. cond10: the largest size over the 10th percentile of the sizes. "
    "Estimates have their standard errors; - was not measured (the dataset's attribute not_measured says why)."
)
CURVATURE = {
    "loss": "loss",
    "gradient_norm": "|gradient|",
    "largest_magnitude": "largest |λ|",
    "trace": "trace",
    "index": "index",
    "share_zero": "share of zeros",
    "cond10": "cond10",
}


def conditioning_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = []
    for title, key, table in (
        ("Condition numbers of weights", "weight_condition", _weights),
        ("Condition numbers of states", "state_condition", _states),
        ("Ranks of gradients", "bound", _gradients),
    ):
        there = {name: data for name, data in datasets.items() if key in data}
        tables += [table(text, there[name]) for name, text in titles(title, there).items()]
    figures = {}
    drawn = {name: d for name, d in datasets.items() if "state_condition" in d or "weight_condition" in d}
    for group in alike(drawn, "layer", "weight"):
        networks, first = named(group), next(iter(group))
        name = first if first.split("-")[-1] == "conditioning" else f"{first}-conditioning"
        figures[name] = Picture(FIGURE.format(title=title_of("Condition numbers", group)), conditioning(networks))
        if any("bound" in data for data in group.values()):
            caption = RANKS.format(title=title_of("Ranks of errors and gradients", group))
            figures[f"{first}-ranks"] = Picture(caption, gradient_ranks(networks))
    numbers = [found for data in datasets.values() if (found := _numbers(data)) is not None]
    sentences = [text for one in in_summary(datasets) for text in _sentences(*one)]
    sentences += others_named(networks_of(datasets), "Conditioning")
    return View(tables, figures, sentences, numbers)


def _cell(here: xarray.Dataset, key: str) -> str:
    return STATUS_IN_TABLE.get(str(here[f"{key}_status"].item())) or number(float(here[f"{key}_condition"]))


def _rank(here: xarray.Dataset, key: str) -> str:
    return f"{number(float(here[f'{key}_rank']))} of {number(float(here[f'{key}_full_rank']))}"


def _weights(title: str, data: xarray.Dataset) -> Table:
    rows = []
    for name in names_of(data, "weight"):
        here = data.sel(weight=name)
        largest, matrix = here.sel(reduction="max"), here.sel(reduction="matrix")
        cells = [_cell(largest, "weight"), _cell(matrix, "weight"), _rank(matrix, "weight")]
        rows.append([name, str(here["weight_shape"].item()), *cells])
    return Table(title, ["weight", "shape", "HOSVD", "matrix", "rank"], rows, WEIGHTS, names=2)


def _states(title: str, data: xarray.Dataset) -> Table:
    rows = []
    for name in names_of(data, "layer"):
        here = data.sel(layer=name)
        largest, channel = here.sel(reduction="max"), here.sel(reduction="channel")
        star = " *" if bool(here["state_limited"]) else ""
        cells = [_cell(largest, "state"), _cell(channel, "state"), _rank(channel, "state") + star]
        zero = number(float(here["state_zero_units"]))
        rows.append([name, str(here["layer_shape"].item()), *cells, zero])
    about = STATES.format(samples=counted(int(data.attrs.get("samples", 0)), "sample"))
    return Table(title, ["layer", "shape", "HOSVD", "channels", "rank", "zero"], rows, about, names=2)


def _gradients(title: str, data: xarray.Dataset) -> Table:
    rows = [
        [name, *(_rank(data.sel(layer=name), key) for key in ("error", "input", "gradient"))]
        for name in names_of(data.dropna("layer", subset=["bound"]), "layer")
    ]
    return Table(title, ["layer", "error", "input", "gradient"], rows, GRADIENTS)


def _numbers(data: xarray.Dataset) -> UnitNumbers | None:
    """Of the state that enters a unit's first layer, where the dataset names the units."""
    units = [unit for unit in str(data.attrs.get("units", "")).split("; ") if unit]
    if not units or "state_condition" not in data:
        return None
    here = data.sel(reduction="max")
    first = {unit: next((n for n in names_of(data, "layer") if f"{n}.".startswith(f"{unit}.")), None) for unit in units}
    statuses = {unit: str(here["state_status"].sel(layer=name).item()) for unit, name in first.items() if name}
    return UnitNumbers(
        str(data.attrs.get("network", "")),
        "condition number of the state at its first layer",
        {
            unit: float(here["state_condition"].sel(layer=first[unit])) if status == "finite" else float("nan")
            for unit, status in statuses.items()
        },
        logarithmic=True,
        words={unit: status for unit, status in statuses.items() if status != "finite"},
    )


def _sentences(words: str, data: xarray.Dataset) -> list[str]:
    """Only where something is wrong."""
    found = []
    for what, key, along in (("weights", "weight", "weight"), ("states", "state", "layer")):
        if f"{key}_condition" not in data:
            continue
        here = data.sel(reduction="max")
        finite = here[f"{key}_status"].values.astype(str) == "finite"
        beyond = [name for name, fine in zip(names_of(data, along), finite, strict=True) if not fine]
        large = max([0.0, *here[f"{key}_condition"].values[finite]])
        if beyond:
            others = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
            found.append(f"{words}{what} are singular, up to rounding: {beyond[0]}{others}.")
        elif large > ILL_CONDITIONED:
            found.append(f"{words}the worst condition number of the {what} is {number(large)}.")
    return found


def curvature_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    headings = titles("Curvature", datasets)
    figures = {
        f"{name}-hessian": Picture(HESSIAN.format(title=headings[name]), hessian(data))
        for name, data in datasets.items()
    }
    rows = [
        [network, *(estimate(data, key) if key in data else "-" for key in CURVATURE)]
        for network, data in named(datasets).items()
    ]
    table = Table("Curvature", ["network", *CURVATURE.values()], rows, ABOUT_CURVATURE)
    return View([table], figures, described(datasets, _curvature_sentence, "Curvature"))


def _curvature_sentence(words: str, data: xarray.Dataset) -> str:
    values = data["value"].values
    return (
        f"{words}the eigenvalues of the loss's Hessian reach from {number(float(values.min()))} to "
        f"{number(float(values.max()))}."
    )
