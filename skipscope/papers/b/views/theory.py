"""The theorems of Demystifying ResNet, as they were checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import xarray

from skipscope.papers.b.figures.theory import (
    error_growth,
    small_norms,
    zero_conditions,
    zero_spectrum,
    zero_stationarity,
)
from skipscope.report.table import Columns, EachOf, Table, TableOf, either, number, table_of
from skipscope.report.views.view import PictureOf, ViewOfParts

CONDITIONS = (
    "Condition number of the Hessian at zero weights against the number of units, one curve per data set; dotted: "
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
    "How the loss changes at a distance t from zero weights; root mean square over random directions, one curve per "
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


def _escape(data: xarray.Dataset) -> Table:
    about = (
        f"Mean loss of linear networks of {data.attrs['layers']} layers on {data.attrs['data']} after "
        f"{data.attrs['steps']} steps of gradient descent, by learning rate; inf where one diverged. At zero the loss "
        f"is {number(data.attrs['loss_at_zero'])}, the lowest possible one {number(data.attrs['lowest_loss'])}."
    )
    columns: Columns = {
        "start": lambda here: f"{float(here['start']):g} Xavier",
        "n": "n",
        "rate {0:g}": EachOf("rate", ("loss", "mean")),
    }
    return table_of(data, "Leaving zero with deep shortcuts", columns, about, rows={"start": "", "n": ""})


ZERO_PICTURES = {
    "zero-conditions": PictureOf("conditions", CONDITIONS, zero_conditions),
    "zero-spectrum": PictureOf("spectrum", SPECTRUM, zero_spectrum),
    "zero-stationarity": PictureOf("stationarity", STATIONARITY, zero_stationarity),
}
ZERO_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "forms": TableOf(
        "The Hessian at zero weights",
        {
            "pre, mid, post": "activations",
            "n": "n",
            "width": "size",
            "error of the Hessian": "hessian_error",
            "of the gradient": "gradient_error",
            "of eigenvalues": "eigenvalue_error",
            "lowest eigenvalue": "lowest",
        },
        "Networks of {units} units on random data: the largest differences between the closed form at zero weights and "
        "automatic differentiation, in float64. One word stands for all three activations.",
    ),
    "conditions": TableOf(
        "Condition numbers at zero weights",
        {
            "data": "data",
            "eigenvalues": either("complex", "complex", "real"),
            "n": "n",
            "cond(M)": "condition_of_M",
            "R = {0}": EachOf("units", "condition"),
        },
        "From all eigenvalues of the Hessian of linear networks. Eigenvalues: of M. For shortcuts of depth 1 the "
        "condition number grows like R in simple cases, and like its square where some of them are complex.",
        rows={"data": "", "n": ""},
        names=2,
    ),
    "whitened": _whitened,
    "stationarity": TableOf(
        "Order of the stationary point",
        {"slope": "slope", "norm of the Hessian": "hessian"},
        "Slope of log |L(t u) - L(0)| over log t; the Hessian at zero by automatic differentiation.",
        rows={"n": "n"},
    ),
    "relu": TableOf(
        "ReLUs in the middle",
        {
            "data": "data",
            "seed": "seed",
            "norm at exact zero": "at_zero",
            "cond at 0.01 Xavier": "condition",
            "cond(M)": "condition_of_M",
            "error of the form": "error",
        },
        "The paper states that ReLUs in the middle follow theorem 2, by way of a smoothed ReLU. With the true one the "
        "Hessian is 0 at exact zero, and near zero it depends on which entries are active; the error is that of the "
        "form with slope 1/2, over its largest entry.",
    ),
    "relu_by_depth": TableOf(
        "ReLUs in the middle, by depth",
        {"{0}": EachOf("architecture", ("log_condition", "mean"))},
        "log10 of the largest over the 10th percentile of |lambda|, mean over networks, on {samples} samples of "
        "{data}: 2-shortcut networks with ReLUs in the middle from 0.01 times Xavier's weights, and linear ones from "
        "orthogonal weights. Theorem 2 says {formula:.4f} for the first.",
        rows={"depth": "depth"},
    ),
    "biases": TableOf(
        "Biases",
        {
            "width": "size",
            "units": "units",
            "error on the weights": "error",
            "with biases": "whole_error",
            "zero eigenvalues": "zeros",
            "cond without zeros": "condition_without_zeros",
            "cond(M)": "condition_of_M",
        },
        "A bias after the first weight of each unit (equation 3) leaves the blocks of the weights alone, but adds as "
        "many zero eigenvalues as there are biases, and changes the others.",
    ),
    "escape": _escape,
}
SMALL_PICTURES = {
    "small-norms": PictureOf("norms", NORMS, small_norms),
    "small-errors": PictureOf("errors", ERRORS, error_growth),
}
SMALL_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "lemma1": TableOf(
        "Lemma 1",
        {"smallest rho": ("rho", "min"), "error of A'": ("image", "max"), "of the norms": ("norm", "max")},
        "Units that move one of m random unit vectors: errors of equations 13 and 14, the worst of all draws.",
        rows={"size": "dimension", "columns": "m"},
    ),
    "paths": TableOf(
        "Lemma 2",
        {
            "arrangement": "arrangement",
            "dimension": "size",
            "m": "columns",
            "rho": "rho",
            "detours": "detours",
            "distance / (rho/2)": "distance",
            "length / bound": "length",
            "units": "units",
            "error unit by unit": "by_unit",
            "error, long arithmetic": "exact",
        },
        "Lemma 2: the smallest distance between points on the way, and the longest path. Errors of a network on it.",
    ),
    "norms": TableOf(
        "Theorem 1: norms",
        {
            "R": "units",
            "largest |W|": "largest",
            "bound": "bound",
            "printed bound": "printed",
            "largest |W| times the root of R": lambda here: number(float(here["largest"] * here["units"] ** 0.5)),
        },
        "The printed bound is the paper's, which is weaker than what its proof gives.",
        rows={"arrangement": "arrangement", "steps": ""},
    ),
    "errors": TableOf(
        "Theorem 1: errors",
        {
            "rho": "rho",
            "predicted growth": "growth",
            "measured growth": "measured_growth",
            "unit by unit": "by_unit",
            "end to end, float64": "composed",
            "end to end, long arithmetic": "exact",
            "digits": "digits",
        },
        "Networks of {units} units. Growth in decades: predicted in the limit of small steps, and from the product of "
        "the units' Jacobians.",
    ),
}
zero_weights_view = ViewOfParts(ZERO_TABLES, ZERO_PICTURES, _zero_sentences)
small_weights_view = ViewOfParts(SMALL_TABLES, SMALL_PICTURES, _small_sentences)
