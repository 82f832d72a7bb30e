"""The theorems of Residual Alignment, as they were checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skipscope.papers.a.figures.theory import (
    jacobian_invariant,
    jacobian_values,
    line_growth,
    line_states,
    logit_errors,
)
from skipscope.report.table import Table, number, rows_of
from skipscope.report.views.view import Picture, View

if TYPE_CHECKING:
    import xarray

LINE, FREE = ("A.theorem31",), ("A.theorem33",)

STATES = (
    "States of an input in a network of aligned linear units, in the plane of u and the first state, for three slopes "
    "of 1/s_i over i. The paper (Li and Papyan, theorem 3.1) states that they are equally spaced on a line for slope "
    "1, and so they are; the printed formula puts them on the axis, since it drops what is orthogonal to u. With other "
    "slopes the line is the same, and the spacing is not."
)
GROWTH = (
    "How fast the component along u grows with depth, and how unequal steps are, against the slope of 1/s_i. States "
    "grow like k to the power 1 / slope (grey); steps are equal at slope 1 alone. So that 1/s_i lies on a line (RA4) "
    "does not suffice for equal steps: its slope has to be 1."
)
VALUES = (
    "Top singular values of the Jacobians at the lowest run of each problem, by unit; one curve a depth. The paper "
    "(theorem 3.3) states that they are equal: every curve is level. Equal values let states grow exponentially, like "
    "(1 + s) to the power of the unit, while the 1 / i of RA4 lets them grow linearly."
)
INVARIANT = (
    "Squared length of the last layer against the singular value of the Jacobians, one point a problem. Stationary "
    "points lie on the curve s (1 + s), whatever depth, width, penalty and loss are."
)
LOGITS = (
    "Relative error of the linearised logit of {title}, against how far an input is from its boundary point; 1 is a "
    "training sample. The paper assumes that samples are next to the boundary and neglects the error. It falls with "
    "the distance, to rounding where the network is linear all the way."
)


def straight_lines_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    parts = _parts(datasets)
    tables = [show(parts[name]) for name, show in LINE_TABLES.items() if name in parts]
    figures = {}
    if "states" in parts:
        figures["line-states"] = Picture(STATES, line_states(parts["states"]), LINE)
    if "growth" in parts:
        figures["line-growth"] = Picture(GROWTH, line_growth(parts["growth"]), LINE)
    return View(tables, figures, _line_sentences(parts))


def unconstrained_jacobians_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    parts = _parts(datasets)
    tables = [show(parts[name]) for name, show in FREE_TABLES.items() if name in parts]
    figures = {}
    if "optima" in parts:
        figures["jacobian-values"] = Picture(VALUES, jacobian_values(parts["optima"]), FREE)
        figures["jacobian-invariant"] = Picture(INVARIANT, jacobian_invariant(parts["optima"]), FREE)
    if "logits" in parts:
        data = parts["logits"]
        figures["linearised-logits"] = Picture(LOGITS.format(title=data.attrs["title"]), logit_errors(data), FREE)
    return View(tables, figures, _free_sentences(parts))


def _parts(datasets: Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    return {str(data.attrs["part"]): data for data in datasets.values()}


def _line_sentences(parts: Mapping[str, xarray.Dataset]) -> list[str]:
    if "formulas" not in parts:
        return []
    data = parts["formulas"]
    free = data["printed"].values[~data["parallel"].values]
    return [
        "States of aligned units follow the corrected formula of theorem 3.1 to "
        f"{number(float(data['corrected'].max()))}; the printed one is off by up to {number(float(free.max()))} of the "
        "first state's length."
    ]


def _free_sentences(parts: Mapping[str, xarray.Dataset]) -> list[str]:
    found = []
    if "optima" in parts:
        data = parts["optima"]
        optimal, runs = int(data["optimal"].sum()), data["optimal"].size
        found.append(
            f"Of {runs} runs of the unconstrained Jacobians model {optimal} end at the scalar optimum, where singular "
            f"values of the Jacobians differ by {number(float(data['variation'].isel(start=0).max()))} of their mean."
        )
    if "logits" in parts:
        data = parts["logits"]
        errors = data["error"].median("sample")
        found.append(
            f"At training samples of {data.attrs['title']} the linearised logit is off by a median of "
            f"{number(float(errors.sel(share=1.0)))} of the logit, at a tenth of the distance by "
            f"{number(float(errors.sel(share=0.1)))}."
        )
    return found


# -- tables of theorem 3.1


def _formulas(data: xarray.Dataset) -> Table:
    rows = []
    for (size, depth, parallel), group in data.groupby(["size", "depth", "parallel"]):
        worst = [
            number(float(group[key].max())) for key in ("corrected", "printed", "telescoping", "from_line", "steps")
        ]
        rows.append([str(size), str(depth), "parallel to u" if parallel else "any", *worst])
    columns = ["dimension", "units", "h_1", "corrected formula", "printed formula", "product", "from a line", "steps"]
    about = (
        "Singular values 1 / i: largest differences between the states, unit by unit, and the formulas, the worst of "
        "all draws; the product against k; states from the line through first and last; steps from the first one."
    )
    return Table("Theorem 3.1: formulas", columns, rows, about, names=3)


def _growth(data: xarray.Dataset) -> Table:
    columns = {
        "slope": "slope of 1/s_i",
        "offset": "offset",
        "growth": "growth",
        "exponent": "exponent",
        "gamma_error": "error of the Gamma form",
        "variation": "step CoV",
        "score": "LSS",
    }
    about = (
        f"Networks of {data.attrs['units']} units. Growth is of the component along u, its exponent that of the last "
        "half of the states. LSS: length of a line of unit steps over the distance it covers."
    )
    return Table("Theorem 3.1: other slopes", list(columns.values()), rows_of(data, columns, names=2), about, names=2)


def _directions(data: xarray.Dataset) -> Table:
    columns = {
        "kind": "singular values",
        "corrected": "error of the formula",
        "from_line": "from a line",
        "steps": "difference of steps",
        "variation": "step CoV",
        "score": "LSS",
    }
    about = (
        f"{data.attrs['directions']} directions, {data.attrs['units']} units. The theorem is for one direction; with "
        "several the states stay on a line, equally spaced, as long as every slope is 1."
    )
    return Table("Theorem 3.1: several directions", list(columns.values()), rows_of(data, columns), about)


# -- tables of theorem 3.3


def _optima(data: xarray.Dataset) -> Table:
    rows = []
    for place in range(data.sizes["case"]):
        here = data.isel(case=place)
        best = here.isel(start=0)
        ended = f"{int(here['optimal'].sum())} of {here.sizes['start']}"
        names = [str(here["loss"].item()), *(f"{float(here[key]):g}" for key in ("size", "depth", "weight"))]
        scalar = [number(float(here[key])) for key in ("omega", "s", "scalar_objective")]
        run = [
            number(float(best[key]))
            for key in ("excess", "gradient", "variation", "second", "left_right", "direction", "head", "invariant")
        ]
        rows.append([*names, *scalar, ended, *run])
    columns = [
        *("loss", "D", "L", "penalty", "|w|, scalar", "s, scalar", "optimum", "runs there"),
        *("excess", "gradient", "CoV of s_1", "s_2 / s_1", "1 - u.v", "1 - |u.d|", "1 - cos(w, d)", "invariant"),
    ]
    flat = data.attrs["part"] == "flat"
    about = (
        "A loss with slope 0 at zero: there all Jacobians and w may stay at zero, which is stationary at every penalty "
        "and the optimum at some. Runs that fall there have no structure to measure."
        if flat
        else "The scalar problem's solution, how many runs from random starts end at its objective, the lowest run: "
        "its objective over the optimum, the norm of its gradient, and how far it is from what the theorem says."
    )
    title = "Theorem 3.3: a loss that is flat at zero" if flat else "Theorem 3.3: optima"
    return Table(title, columns, rows, about, names=4)


def _stationary(data: xarray.Dataset) -> Table:
    columns = {
        "size": "D",
        "flipped": "flipped units",
        "s": "s",
        "objective": "objective",
        "gradient": "gradient",
        "curvature": "lowest curvature",
    }
    about = (
        f"All stationary points for the logistic loss, L = {data.attrs['depth']} and a penalty of "
        f"{data.attrs['weight']:g}: roots of one equation for each number of units whose Jacobian is -(1 + s) d d^T. "
        "Those with a negative curvature are no minima."
    )
    return Table("Stationary points", list(columns.values()), rows_of(data, columns, names=2), about, names=2)


def _traces(data: xarray.Dataset) -> Table:
    rows = []
    for (count, order), group in data.groupby(["matrices", "order"]):
        off = float(abs(group["ascended"] - group["formula"]).max())
        attained = float(abs(group["attained"] - group["formula"]).max())
        gap = float((group["formula"] - group["sampled"]).min())
        rows.append([str(count), str(order), *map(number, (off, attained, gap)), number(float(group["sweeps"].max()))])
    columns = ["matrices", "size", "|ascent - formula|", "|at the formula's rotations - formula|", "gap", "sweeps"]
    about = (
        "Random matrices, determinants of both signs, over rotations and over all orthogonal matrices: the worst of "
        "four. Gap: how far the largest of random rotations stays below the formula."
    )
    return Table("The trace inequality", columns, rows, about, names=2)


def _logits(data: xarray.Dataset) -> Table:
    rows = []
    for share in data["share"].values:
        here = data.sel(share=share)
        errors = (here["error"].median(), here["error"].max(), here["error_from_first_state"].median())
        rows.append([f"{float(share):g}", number(float(here["logit"].median())), *(number(float(e)) for e in errors)])
    about = (
        f"{data.attrs['title']}, {data.attrs['units']} units, {data.attrs['test_accuracy']:.1%} of test images right. "
        f"Logits of {data.sizes['sample']} training samples, and of points nearer to the boundary, by the Jacobians at "
        "a boundary point; from the first state: without the stem, as the paper has it."
    )
    columns = ["share of the way", "median logit", "median error", "largest error", "median, from the first state"]
    return Table("The linearised logit", columns, rows, about)


LINE_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "formulas": _formulas,
    "growth": _growth,
    "directions": _directions,
}
FREE_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "optima": _optima,
    "flat": _optima,
    "stationary": _stationary,
    "traces": _traces,
    "logits": _logits,
}
