"""Units whose skip is multiplied by alpha: the plateau moves to |alpha|, the other singular values do not follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.papers.d.figures.scaling import plateau
from skipscope.report.table import Cell, Table, count_of, table_of
from skipscope.report.views.view import Picture, View, counted, made_by, titles

if TYPE_CHECKING:
    import xarray

CAPTION = (
    "{title}: singular values in descending order, with the skip multiplied by alpha; one curve per alpha{samples}, "
    "grey lines at each |alpha|. The paper (Rothauge et al., figure 5 left) shows a plateau at |alpha|, while the "
    "other singular values are not scaled: a curve is flat where it lies on its own grey line, and elsewhere the "
    "curves differ by less than their alphas. Long curves are drawn through 500 of their values."
)
ABOUT = (
    "A unit has n outputs, z of them inactive, and r active inner ReLUs. Proved: at least n - z - 2 r singular values "
    "are |alpha|. Counted: by a decomposition that knows nothing of the law. Correlation: of the other singular values "
    "with alpha times those at alpha = 1. Means over {samples}. Of {generic} with 2 r < n - z, counted equals proved "
    "in {equal}."
)
COUNTS = {"size": "n", "inactive": "z", "inner_active": "r", "proved": "proved", "counted": "counted"}


def scaling_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    for name, title in titles("Spectra with a scaled skip", datasets).items():
        data = datasets[name]
        tables.append(_table(title, data))
        samples = " and sample" if data.sizes["sample"] > 1 else ""
        caption = CAPTION.format(title=title, samples=samples)
        figures[f"{name}-plateau"] = Picture(caption, plateau(data), made_by(data))
    return View(tables, figures)


def _table(title: str, data: xarray.Dataset) -> Table:
    means = data[[*COUNTS, "correlation"]].mean("sample")
    columns: dict[str, Cell] = {title: count_of(key) for key, title in COUNTS.items()}
    columns["correlation"] = "correlation"
    generic = data["generic"] == 1
    equal = generic & (data["counted"] == data["proved"])
    about = ABOUT.format(
        samples=counted(data.sizes["sample"], "sample"),
        generic=counted(int(generic.sum()), "spectrum", "spectra"),
        equal=int(equal.sum()),
    )
    return table_of(means, title, columns, about, rows={"unit": "unit", "alpha": "alpha"})
