"""The theorems of Residual Alignment, as they were checked: pictures, tables, sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart, lines, reference, thin_lines
from skipscope.report.style import GREY, members
from skipscope.report.table import Table, TableOf, number
from skipscope.report.views.view import PictureOf, ViewOfParts

CURVE_POINTS = 100
LOWEST = 1e-16  # an error that is drawn as it is; smaller ones, and 0, here
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
    "Top singular values of the Jacobians at the lowest run of each problem, by unit; one curve per depth. The paper "
    "(theorem 3.3) states that they are equal: every curve is level. Equal values let states grow exponentially, like "
    "(1 + s) to the power of the unit, while the 1 / i of RA4 lets them grow linearly."
)
INVARIANT = (
    "Squared length of the last layer against the singular value of the Jacobians, one point per problem. Stationary "
    "points lie on the curve s (1 + s), whatever depth, width, penalty and loss are."
)
LOGITS = (
    "Relative error of the linearised logit of {title}, against how far an input is from its boundary point; 1 is a "
    "training sample. The paper assumes that samples are next to the boundary and neglects the error. It falls with "
    "the distance, to rounding where the network is linear all the way."
)


# -- pictures


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


# -- sentences


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


def _largest_difference(key: str) -> Callable[[xarray.Dataset], str]:
    return lambda group: number(float(abs(group[key] - group["formula"]).max()))


LINE_PICTURES = {
    "line-states": PictureOf("states", STATES, line_states),
    "line-growth": PictureOf("growth", GROWTH, line_growth),
}
LINE_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "formulas": TableOf(
        "Theorem 3.1: formulas",
        {
            "h_1": lambda group: "parallel to u" if group["parallel"].values.all() else "any",
            "corrected formula": ("corrected", "max"),
            "printed formula": ("printed", "max"),
            "product": ("telescoping", "max"),
            "from a line": ("from_line", "max"),
            "steps": ("steps", "max"),
        },
        "Singular values 1 / i: largest differences between the states, unit by unit, and the formulas, the worst of "
        "all draws; the product against k; states from the line through first and last; steps from the first one.",
        rows={"size": "dimension", "depth": "units", "parallel": ""},
        names=3,
    ),
    "growth": TableOf(
        "Theorem 3.1: other slopes",
        {
            "slope of 1/s_i": "slope",
            "offset": "offset",
            "growth": "growth",
            "exponent": "exponent",
            "error of the Gamma form": "gamma_error",
            "step CoV": "variation",
            "LSS": "score",
        },
        "Networks of {units} units. Growth is of the component along u, its exponent that of the last half of the "
        "states. LSS: length of a line of unit steps over the distance it covers.",
        names=2,
    ),
    "directions": TableOf(
        "Theorem 3.1: several directions",
        {
            "singular values": "kind",
            "error of the formula": "corrected",
            "from a line": "from_line",
            "difference of steps": "steps",
            "step CoV": "variation",
            "LSS": "score",
        },
        "{directions} directions, {units} units. The theorem is for one direction; with several the states stay on a "
        "line, equally spaced, as long as every slope is 1.",
    ),
}
LINE_TABLES["assumption"] = TableOf(
    "Theorem 3.1: the assumption of linear branches",
    {
        "networks": lambda group: f"{group.sizes['network']} {group['trained'].values[0]}",
        "|step - J h| / |step|": ("error", "median"),
        "smallest": ("error", "min"),
        "largest": ("error", "max"),
        "share of bias": ("bias", "median"),
    },
    "The theorem takes a step of a network for J h. Medians over blocks and {images} training images of each network, "
    "and of these over the networks; an error of 1 is as large as the step. Bias: what is left of a branch at h = 0, "
    "continued linearly.",
    rows={"form": "form"},
)
FREE_PICTURES = {
    "jacobian-values": PictureOf("optima", VALUES, jacobian_values),
    "jacobian-invariant": PictureOf("optima", INVARIANT, jacobian_invariant),
    "linearised-logits": PictureOf("logits", LOGITS, logit_errors),
}
FREE_TABLES: dict[str, Callable[[xarray.Dataset], Table]] = {
    "optima": _optima,
    "flat": _optima,
    "stationary": TableOf(
        "Stationary points",
        {
            "D": "size",
            "flipped units": "flipped",
            "s": "s",
            "objective": "objective",
            "gradient": "gradient",
            "lowest curvature": "curvature",
        },
        "All stationary points for the logistic loss, L = {depth} and a penalty of {weight:g}: roots of one equation "
        "for each number of units whose Jacobian is -(1 + s) d d^T. Those with a negative curvature are no minima.",
        names=2,
    ),
    "traces": TableOf(
        "The trace inequality",
        {
            "|ascent - formula|": _largest_difference("ascended"),
            "|at the formula's rotations - formula|": _largest_difference("attained"),
            "gap": lambda group: number(float((group["formula"] - group["sampled"]).min())),
            "sweeps": ("sweeps", "max"),
        },
        "Random matrices, determinants of both signs, over rotations and over all orthogonal matrices: the worst of "
        "four. Gap: how far the largest of random rotations stays below the formula.",
        rows={"matrices": "matrices", "order": "size"},
        names=2,
    ),
    "logits": TableOf(
        "The linearised logit",
        {
            "median logit": ("logit", "median"),
            "median error": ("error", "median"),
            "largest error": ("error", "max"),
            "median, from the first state": ("error_from_first_state", "median"),
        },
        "{title}, {units} units, {test_accuracy:.1%} of test images right. Logits of {number_of_sample} training "
        "samples, and of points nearer to the boundary, by the Jacobians at a boundary point; from the first state: "
        "without the stem, as the paper has it.",
        rows={"share": "share of the way"},
    ),
}
FREE_TABLES["networks"] = TableOf(
    "The linearised logit in several networks",
    {
        "median error": ("error", "median"),
        "smallest": ("error", "min"),
        "largest": ("error", "max"),
    },
    "{title}: medians over {samples} training samples of each of {number_of_network} networks, and of these over the "
    "networks, against how far points are from the boundary.",
    rows={"share": "share of the way"},
)
straight_lines_view = ViewOfParts(LINE_TABLES, LINE_PICTURES, _line_sentences)
unconstrained_jacobians_view = ViewOfParts(FREE_TABLES, FREE_PICTURES, _free_sentences)
