"""The Jacobian test and the adjoint test of every unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.table import Table, number
from skipscope.report.views.view import View, titles

if TYPE_CHECKING:
    import xarray

ABOUT = (
    "Is the Jacobian the derivative of the unit, and its transpose its transpose? r0 = |f(h + e d) - f(h)| must fall "
    "with slope 1 in e, r1 = |f(h + e d) - f(h) - e J d| with slope 2 or, where no kink is crossed, to rounding."
)


def verification_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = []
    for name, title in titles("Tests of the linearisation", datasets).items():
        data = datasets[name]
        rows = [
            [
                str(unit),
                "yes" if bool(data["passed"].sel(unit=unit)) else "NO",
                str(data["seen"].sel(unit=unit).item()),
                *(number(float(data[key].sel(unit=unit))) for key in ("slope_zeroth", "slope_first", "adjoint_error")),
            ]
            for unit in data["unit"].values
        ]
        columns = ["unit", "passed", "seen", "slope of r0", "slope of r1", "adjoint error"]
        tables.append(Table(title, columns, rows, ABOUT, names=3))
    total = sum(data.sizes["unit"] for data in datasets.values())
    wrong = sum(int((data["passed"] == 0).sum()) for data in datasets.values())
    if wrong:
        sentence = f"{wrong} of {total} Jacobians FAILED the derivative or the adjoint test: distrust what follows."
    else:
        sentence = f"All {total} Jacobians passed the derivative and the adjoint test."
    return View(tables, sentences=[sentence])
