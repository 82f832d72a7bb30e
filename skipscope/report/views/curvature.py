"""Hessians of losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import hessian
from skipscope.report.table import Table, number, with_error
from skipscope.report.views.view import Picture, View, in_summary, named, titles

if TYPE_CHECKING:
    import xarray

CAPTION = (
    "{title}: sizes of the eigenvalues of the loss's Hessian by rank, from the largest to the smallest, and how they "
    "are distributed. Open markers did not converge."
)
ABOUT = (
    "Index: the share of negative eigenvalues. cond10: the largest size over the 10th percentile of the sizes. "
    "Estimates have their standard errors; - was not measured (the dataset's attribute not_measured says why)."
)
COLUMNS = {
    "loss": "loss",
    "gradient_norm": "|gradient|",
    "largest_magnitude": "largest |λ|",
    "trace": "trace",
    "index": "index",
    "share_zero": "share of zeros",
    "cond10": "cond10",
}


def curvature_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    headings = titles("Curvature", datasets)
    figures = {
        f"{name}-hessian": Picture(CAPTION.format(title=headings[name]), hessian(data))
        for name, data in datasets.items()
    }
    rows = [[network, *(_cell(data, key) for key in COLUMNS)] for network, data in named(datasets).items()]
    table = Table("Curvature", ["network", *COLUMNS.values()], rows, ABOUT)
    return View([table], figures, [_sentence(*one) for one in in_summary(datasets)])


def _cell(data: xarray.Dataset, key: str) -> str:
    if key not in data:
        return "-"
    error = f"{key}_error"
    return with_error(float(data[key]), float(data[error])) if error in data else number(float(data[key]))


def _sentence(words: str, data: xarray.Dataset) -> str:
    values = data["value"].values
    return (
        f"{words}the eigenvalues of the loss's Hessian reach from {number(float(values.min()))} to "
        f"{number(float(values.max()))}."
    )
