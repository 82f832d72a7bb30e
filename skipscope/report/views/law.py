"""Whether numbers can be trusted: tests of the linearisation, and counted singular values beside the exact law."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from skipscope.report.figures import law
from skipscope.report.table import Cell, Table, either, mean_count, table_of
from skipscope.report.views.view import Picture, View, counted, made_by, network_of, titles

ABOUT = (
    "A unit has n outputs, z of them inactive, and r active inner ReLUs. Proved: at least z zeros, at least n - z - 2 r"
    " ones, at most r singular values above 1 and at most r between 0 and 1; for a skip that pads with zeros, n - z "
    "counts the outputs that the skip brings something to. Counted: by a decomposition of the whole Jacobian that "
    "knows nothing of the law."
)
CAPTION = (
    "Singular values that are exactly 1: counted against proved, as shares of n, one point per unit and sample. The "
    "law says that no point lies below the diagonal, and that points right of 0 generically lie on it."
)
NOTHING = "The exact law predicts no singular values of 1 here: too many inner ReLUs are active, or there are none."
COLUMNS = {
    "size": "n",
    "inactive": "z",
    "inner_active": "r",
    "ones_at_least": "ones proved",
    "ones": "ones",
    "zeros_at_least": "zeros proved",
    "zeros": "zeros",
    "above": "above 1",
    "below": "between",
}
ABOUT_TESTS = (
    "Is the Jacobian the derivative of the unit, and its transpose its transpose? r0 = |f(h + e d) - f(h)| must fall "
    "with slope 1 in e, r1 = |f(h + e d) - f(h) - e J d| with slope 2 or, where no kink is crossed, to rounding."
)
TEST_COLUMNS: dict[str, Cell] = {
    "passed": either("passed", no="NO"),
    "seen": "seen",
    "slope of r0": "slope_zeroth",
    "slope of r1": "slope_first",
    "adjoint error": "adjoint_error",
}


def verification_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = [
        table_of(datasets[name], title, TEST_COLUMNS, ABOUT_TESTS, rows={"unit": "unit"}, names=3)
        for name, title in titles("Tests of the linearisation", datasets).items()
    ]
    total = sum(data.sizes["unit"] for data in datasets.values())
    wrong = sum(int((data["passed"] == 0).sum()) for data in datasets.values())
    if wrong:
        sentence = f"{wrong} of {total} Jacobians FAILED the derivative or the adjoint test: distrust what follows."
    else:
        sentence = f"All {total} Jacobians passed the derivative and the adjoint test."
    return View(tables, sentences=[sentence])


def law_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables = [_summary(datasets), _units(datasets)]
    informative = sum(int((data["generic"] == 1).sum()) for data in datasets.values())
    if not informative:
        return View(tables, sentences=[NOTHING])
    picture = Picture(CAPTION, law(datasets), made_by(next(iter(datasets.values()))))
    return View(tables, {"law": picture}, [_sentence(datasets, informative)])


def _sentence(datasets: Mapping[str, xarray.Dataset], informative: int) -> str:
    violated = sum(int(data["violated"].any("bound").sum()) for data in datasets.values())
    held = "nothing contradicts it" if not violated else f"{counted(violated, 'pair')} CONTRADICT it"
    return (
        f"The exact law predicts singular values of exactly 1 in {counted(informative, 'pair')} of unit and sample, "
        f"and {held}."
    )


def _summary(datasets: Mapping[str, xarray.Dataset]) -> Table:
    """One row per network, which may be spread over several datasets."""
    counts: dict[str, list[int]] = {}
    for data in datasets.values():
        row = counts.setdefault(network_of(data), [0, 0, 0, 0])
        generic = data["generic"] == 1
        equal = generic & (data["ones"] == data["ones_at_least"])
        found = (data["size"].notnull(), generic, equal, data["violated"].any("bound"))
        for place, which in enumerate(found):
            row[place] += int(which.sum())
    rows = [[network, *map(str, row)] for network, row in counts.items()]
    columns = ["network", "pairs of unit and sample", "with 2 r < n - z", "of them equal", "contradicting a bound"]
    return Table("The exact law", columns, rows, ABOUT)


def _units(datasets: Mapping[str, xarray.Dataset]) -> Table:
    rows = []
    for data in datasets.values():
        means = data[list(COLUMNS)].mean("sample")
        for unit in data["unit"].values:
            here = means.sel(unit=unit)
            remark = str(data["reason"].sel(unit=unit).item()) or str(data["skip"].sel(unit=unit).item())
            rows.append([network_of(data), str(unit), remark, *(mean_count(float(here[key])) for key in COLUMNS)])
    columns = ["network", "unit", "skip, or why there is no law", *COLUMNS.values()]
    return Table("The exact law, unit by unit", columns, rows, "Means over the samples.", names=3)
