"""The Jacobian test and the adjoint test of every unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.table import Cell, table_of
from skipscope.report.views.view import View, titles

if TYPE_CHECKING:
    import xarray

ABOUT = (
    "Is the Jacobian the derivative of the unit, and its transpose its transpose? r0 = |f(h + e d) - f(h)| must fall "
    "with slope 1 in e, r1 = |f(h + e d) - f(h) - e J d| with slope 2 or, where no kink is crossed, to rounding."
)


COLUMNS: dict[str, Cell] = {
    "passed": lambda here: "yes" if bool(here["passed"]) else "NO",
    "seen": "seen",
    "slope of r0": "slope_zeroth",
    "slope of r1": "slope_first",
    "adjoint error": "adjoint_error",
}


def verification_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = [
        table_of(datasets[name], title, COLUMNS, ABOUT, rows={"unit": "unit"}, names=3)
        for name, title in titles("Tests of the linearisation", datasets).items()
    ]
    total = sum(data.sizes["unit"] for data in datasets.values())
    wrong = sum(int((data["passed"] == 0).sum()) for data in datasets.values())
    if wrong:
        sentence = f"{wrong} of {total} Jacobians FAILED the derivative or the adjoint test: distrust what follows."
    else:
        sentence = f"All {total} Jacobians passed the derivative and the adjoint test."
    return View(tables, sentences=[sentence])
