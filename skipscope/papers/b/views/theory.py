"""The theorems of Demystifying ResNet, as they were checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skipscope.papers.b.figures.theory import (
    error_growth,
    small_norms,
    zero_conditions,
    zero_spectrum,
    zero_stationarity,
)
from skipscope.report.table import Table, number, rows_of
from skipscope.report.views.view import Picture, View

if TYPE_CHECKING:
    import xarray

ZERO, SMALL = ("B.theorem2",), ("B.theorem1",)

CONDITIONS = (
    "Condition number of the Hessian at zero weights against the number of units, one curve a data set; dotted lines: "
    "cond(M). The paper (Li et al., theorem 2) states that shortcuts of depth 2 have the condition number of M at "
    "every depth, so that their curves are flat and lie on the dotted lines; and that it explodes for depth 1. It "
    "grows at least like R there; like its square, with jumps, where M has complex eigenvalues (see the table)."
)
SPECTRUM = (
    "Eigenvalues of the Hessian at zero weights, for {units} units on {data}. The paper states that for shortcuts of "
    "depth 2 the Hessian is made of copies of M: eigenvalues come in pairs plus and minus, each as often as the width "
    "times the number of units, however many units there are. For depth 1 some are far to the right, and the farther "
    "the more units there are, while the gap around zero closes."
)
STATIONARITY = (
    "How the loss changes at a distance t from zero weights; root mean square over random directions, one curve a "
    "shortcut depth n. The paper states that zero is stationary of order n - 1: the curve of n has slope n, so that "
    "the deeper the shortcut, the flatter is the loss. Changes that rounding hides are left out."
)
NORMS = (
    "The largest weight of the constructed network, times the square root of the number R of units, against R. The "
    "paper (theorem 1) states that weights shrink like one over that root: the curves are level, approach their limit "
    "and stay below the bound."
)
ERRORS = (
    "Errors of the constructed network's output, for pairs of points that are the closer, the more to the right. "
    "The paper proves that the network interpolates, and so it does unit by unit and with enough digits (both low). It "
    "does not say that rounding errors grow from unit to unit: end to end, float64 follows the grey line and loses "
    "the output, whose entries are at most 1."
)


def zero_weights_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    parts = _parts(datasets)
    tables = [show(parts[name]) for name, show in ZERO_TABLES.items() if name in parts]
    figures = {}
    if "conditions" in parts:
        figures["zero-conditions"] = Picture(CONDITIONS, zero_conditions(parts["conditions"]), ZERO)
    if "spectrum" in parts:
        data = parts["spectrum"]
        caption = SPECTRUM.format(units=data.attrs["units"], data=data.attrs["data"])
        figures["zero-spectrum"] = Picture(caption, zero_spectrum(data), ZERO)
    if "stationarity" in parts:
        figures["zero-stationarity"] = Picture(STATIONARITY, zero_stationarity(parts["stationarity"]), ZERO)
    return View(tables, figures, _zero_sentences(parts))


def small_weights_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    parts = _parts(datasets)
    tables = [show(parts[name]) for name, show in SMALL_TABLES.items() if name in parts]
    figures = {}
    if "norms" in parts:
        figures["small-norms"] = Picture(NORMS, small_norms(parts["norms"]), SMALL)
    if "errors" in parts:
        figures["small-errors"] = Picture(ERRORS, error_growth(parts["errors"]), SMALL)
    return View(tables, figures, _small_sentences(parts))


def _parts(datasets: Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    return {str(data.attrs["part"]): data for data in datasets.values()}


def _zero_sentences(parts: Mapping[str, xarray.Dataset]) -> list[str]:
    found = []
    if "forms" in parts:
        data = parts["forms"]
        found.append(
            f"At zero weights the closed forms of the Hessian agree with automatic differentiation on "
            f"{data.sizes['case']} networks, to {number(float(data['hessian_error'].max()))}."
        )
    if "conditions" in parts:
        data = parts["conditions"]
        flat = data["condition"].sel(n=2).max("units") / data["condition"].sel(n=2).min("units") - 1
        found.append(
            f"The condition number with shortcuts of depth 2 changes over depths by {number(float(flat.max()))} "
            "of itself."
        )
    return found


def _small_sentences(parts: Mapping[str, xarray.Dataset]) -> list[str]:
    if "errors" not in parts:
        return []
    data = parts["errors"]
    closest = data.sel(rho=data["rho"].min())
    return [
        f"The interpolating network is right to {number(float(data['by_unit'].max()))} unit by unit; end to end "
        f"float64 is off by {number(float(closest['composed']))} for points at distance {float(closest['rho']):g}."
    ]


# -- tables of theorem 2


def _forms(data: xarray.Dataset) -> Table:
    columns = {
        "activations": "pre, mid, post",
        "n": "n",
        "size": "width",
        "hessian_error": "error of the Hessian",
        "gradient_error": "of the gradient",
        "eigenvalue_error": "of eigenvalues",
        "lowest": "lowest eigenvalue",
    }
    about = (
        f"Networks of {data.attrs['units']} units on random data: the largest differences between the closed form at "
        "zero weights and automatic differentiation, in float64. One word stands for all three activations."
    )
    return Table("The Hessian at zero weights", list(columns.values()), rows_of(data, columns), about)


def _conditions(data: xarray.Dataset) -> Table:
    units = [int(u) for u in data["units"].values]
    rows = []
    for name in data["data"].values:
        here = data.sel(data=name)
        words = "complex" if bool(here["complex"]) else "real"
        for n in data["n"].values:
            conditions = [number(float(value)) for value in here["condition"].sel(n=n).values]
            rows.append([str(name), words, str(n), number(float(here["condition_of_M"])), *conditions])
    about = (
        "From all eigenvalues of the Hessian of linear networks. Eigenvalues: of M. For shortcuts of depth 1 the "
        "condition number grows like R in simple cases, and like its square where some of them are complex."
    )
    columns = ["data", "eigenvalues", "n", "cond(M)", *(f"R = {u}" for u in units)]
    return Table("Condition numbers at zero weights", columns, rows, about, names=2)


def _whitened(data: xarray.Dataset) -> Table:
    signs = data["condition_by_signs"]
    numbers = {
        "cond(M)": data["condition"],
        "with the 10th percentile for the smallest eigenvalue": data["percentile_condition"],
        "smallest cond(M) over all signs": signs.min(),
        "largest cond(M) over all signs": signs.max(),
        "loss at zero weights": data["loss_at_identity"],
        "lowest loss of a linear map": data["lowest_loss"],
    }
    rows = [[name, f"{float(value):.7g}"] for name, value in numbers.items()]
    about = (
        "Principal components are determined up to their signs, on which M depends: each has its largest entry "
        "positive here. The other signs are just as good."
    )
    return Table(f"The whitened data, {data.attrs['data']}", ["quantity", "value"], rows, about)


def _stationarity(data: xarray.Dataset) -> Table:
    columns = {"n": "n", "slope": "slope", "hessian": "norm of the Hessian"}
    about = "Slope of log |L(t u) - L(0)| over log t; the Hessian at zero by automatic differentiation."
    shown = data[["slope", "hessian"]]
    return Table("Order of the stationary point", list(columns.values()), rows_of(shown, columns), about)


def _relu(data: xarray.Dataset) -> Table:
    columns = {
        "data": "data",
        "seed": "seed",
        "at_zero": "norm at exact zero",
        "condition": "cond at 0.01 Xavier",
        "condition_of_M": "cond(M)",
        "error": "error of the form",
    }
    about = (
        "The paper states that ReLUs in the middle follow theorem 2, by way of a smoothed ReLU. With the true one the "
        "Hessian is 0 at exact zero, and near zero it depends on which entries are active; the error is that of the "
        "form with slope 1/2, over its largest entry."
    )
    return Table("ReLUs in the middle", list(columns.values()), rows_of(data, columns), about)


def _biases(data: xarray.Dataset) -> Table:
    columns = {
        "size": "width",
        "units": "units",
        "error": "error on the weights",
        "whole_error": "with biases",
        "zeros": "zero eigenvalues",
        "condition_without_zeros": "cond without zeros",
        "condition_of_M": "cond(M)",
    }
    about = (
        "A bias after the first weight of each unit (equation 3) leaves the blocks of the weights alone, but adds as "
        "many zero eigenvalues as there are biases, and changes the others."
    )
    return Table("Biases", list(columns.values()), rows_of(data, columns), about)


def _escape(data: xarray.Dataset) -> Table:
    rates = [float(rate) for rate in data["rate"].values]
    means = data["loss"].mean("network")
    rows = [
        [f"{float(start):g} Xavier", str(n), *(number(float(value)) for value in means.sel(n=n, start=start).values)]
        for start in data["start"].values
        for n in data["n"].values
    ]
    about = (
        f"Mean loss of linear networks of {data.attrs['layers']} layers on {data.attrs['data']} after "
        f"{data.attrs['steps']} steps of gradient descent, by learning rate; inf where one diverged. At zero the loss "
        f"is {number(data.attrs['loss_at_zero'])}, the lowest possible one {number(data.attrs['lowest_loss'])}."
    )
    columns = ["start", "n", *(f"rate {rate:g}" for rate in rates)]
    return Table("Leaving zero with deep shortcuts", columns, rows, about)


# -- tables of theorem 1


def _lemma1(data: xarray.Dataset) -> Table:
    rows = []
    for (size, columns), group in data.groupby(["size", "columns"]):
        worst = [number(float(group[key].max())) for key in ("image", "norm")]
        rows.append([str(size), str(columns), number(float(group["rho"].min())), *worst])
    about = "Units that move one of m random unit vectors: errors of equations 13 and 14, the worst of all draws."
    return Table("Lemma 1", ["dimension", "m", "smallest rho", "error of A'", "of the norms"], rows, about)


def _paths(data: xarray.Dataset) -> Table:
    columns = {
        "arrangement": "arrangement",
        "size": "dimension",
        "columns": "m",
        "rho": "rho",
        "detours": "detours",
        "distance": "distance / (rho/2)",
        "length": "length / bound",
        "units": "units",
        "by_unit": "error unit by unit",
        "exact": "error, long arithmetic",
    }
    about = "Lemma 2: the smallest distance between points on the way, and the longest path. Errors of a network on it."
    return Table("Lemma 2", list(columns.values()), rows_of(data, columns), about)


def _norms(data: xarray.Dataset) -> Table:
    rows = []
    for name in data["arrangement"].values:
        for steps in data["steps"].values:
            here = data.sel(arrangement=name, steps=steps)
            values = [float(here[key]) for key in ("largest", "bound", "printed")]
            rows.append([str(name), str(int(here["units"])), *map(number, values), number(_scaled(here))])
    columns = ["arrangement", "R", "largest |W|", "bound", "printed bound", "largest |W| times the root of R"]
    about = "The printed bound is the paper's, which is weaker than what its proof gives."
    return Table("Theorem 1: norms", columns, rows, about)


def _scaled(here: xarray.Dataset) -> float:
    return float(here["largest"]) * float(here["units"]) ** 0.5


def _errors(data: xarray.Dataset) -> Table:
    columns = {
        "rho": "rho",
        "growth": "predicted growth",
        "measured_growth": "measured growth",
        "by_unit": "unit by unit",
        "composed": "end to end, float64",
        "exact": "end to end, long arithmetic",
        "digits": "digits",
    }
    about = (
        f"Networks of {data.attrs['units']} units. Growth in decades: predicted in the limit of small steps, and from "
        "the product of the units' Jacobians."
    )
    return Table("Theorem 1: errors", list(columns.values()), rows_of(data, columns), about)


ZERO_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "forms": _forms,
    "conditions": _conditions,
    "whitened": _whitened,
    "stationarity": _stationarity,
    "relu": _relu,
    "biases": _biases,
    "escape": _escape,
}
SMALL_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "lemma1": _lemma1,
    "paths": _paths,
    "norms": _norms,
    "errors": _errors,
}
