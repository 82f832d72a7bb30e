"""A sweep: one row per model, checkpoint or step, and curves over the units."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.report.figures.sweeps import CURVES, TITLES, dimension_of, panels_of, sweep
from skipscope.report.style import names_of
from skipscope.report.table import Table, number
from skipscope.report.views.view import Picture, View, counted

SHORT = {
    "profile_state_rms": "state",
    "profile_gradient_rms": "gradient",
    "profile_branch_over_skip": "|F|/|skip|",
    "profile_cosine": "cos",
    "profile_jacobian_square": "|J|²/n",
    "profile_effective_rank": "eff. rank",
    "spectra_largest": "largest",
    "spectra_mean": "mean",
    "spectra_share_above": "above 1",
    "spectra_share_near_one": "near 1",
    "spectra_share_zero": "zero",
    "leading_largest": "largest",
    "leading_share_above": "above 1",
    "leading_share_near_one": "near 1",
    "alignment_u1v1": "u1v1",
    "alignment_energy": "energy",
    "alignment_frobenius": "|J_F|",
    "normality_spectral_radius": "radius",
    "normality_departure": "departure",
    "normality_amplification": "amplified",
    "depth_use_skip_kl": "skip KL",
}
assert SHORT.keys() == TITLES.keys()


def sweep_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, sentences = [], {}, []
    for name, data in datasets.items():
        tables.append(_table(data))
        if panels_of(data):
            figures[name] = Picture(_caption(data), sweep(data))
        sentences += _sentences(data)
    return View(tables, figures, sentences)


def _table(data: xarray.Dataset) -> Table:
    over, along = dimension_of(data), "unit" if "unit" in data.dims else "position"
    panels = panels_of(data)
    rows = []
    for place, label in enumerate(names_of(data, over)):
        here = data.isel({over: place})
        medians = [float(numpy.nan if here[key].isnull().all() else here[key].median(along)) for key in panels]
        rows.append([label, str(int(here["units"])), *map(number, medians)])
    columns = [over, "units", *(SHORT[key] for key in panels)]
    titles = "; ".join(f"{SHORT[key]}: {title}" for key, title in panels.items())
    about = (
        f"Medians over the units of a {over}; each unit's number is a mean over the samples. {titles}. "
        f"Units correspond {data.attrs['aligned']}."
    )
    return Table(f"{counted(len(rows), over)} side by side", columns, rows, about)


def _caption(data: xarray.Dataset) -> str:
    over = dimension_of(data)
    if data.sizes[over] <= CURVES:
        what = f"one curve for each {over} over its units"
    else:
        what = f"for each {over} the median over its units, with bars from the lower to the upper quartile"
    return f"Sweep over {data.sizes[over]} of dimension '{over}': {what}. Units correspond {data.attrs['aligned']}."


def _sentences(data: xarray.Dataset) -> list[str]:
    over = dimension_of(data)
    failures = {label: str(why) for label, why in zip(names_of(data, over), data["failure"].values, strict=True) if why}
    found = [f"{counted(data.sizes[over] - len(failures), over)} measured: {data.attrs['measures']}."]
    return found + [f"Not measured: {label}: {why.rstrip('.?')}." for label, why in failures.items()]
