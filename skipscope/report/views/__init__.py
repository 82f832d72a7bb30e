"""From datasets to what a report shows of them: one module per kind of measurement.

A dataset says what it is by its attribute `measure`. All datasets of one kind are shown together, so that networks
stand side by side. Views of the core are listed here; papers register theirs (`skipscope.registration`). A dataset
without a view is shown as a plain table. A dataset with the attribute `part` and no measure is a piece of others and is
not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy
import xarray

from skipscope.errors import SkipscopeError
from skipscope.registration import views as registered_views
from skipscope.report.table import Table, number
from skipscope.report.views.alignment import alignment_view
from skipscope.report.views.collapse import collapse_view
from skipscope.report.views.conditioning import conditioning_view, curvature_view
from skipscope.report.views.coupling import coupling_view
from skipscope.report.views.depth_use import depth_use_view
from skipscope.report.views.law import law_view, verification_view
from skipscope.report.views.lens import lens_view
from skipscope.report.views.monitored import alarms_view, monitor_view
from skipscope.report.views.normality import normality_view
from skipscope.report.views.profile import profile_view
from skipscope.report.views.spectra import leading_view, spectra_view
from skipscope.report.views.stability import stability_view
from skipscope.report.views.streams import streams_view
from skipscope.report.views.sweeps import sweep_view
from skipscope.report.views.training import distributions_view, history_view
from skipscope.report.views.trajectories import trajectories_view
from skipscope.report.views.view import Curve, Picture, UnitCurves, UnitNumbers, View

__all__ = [
    "VIEWS",
    "Curve",
    "Picture",
    "Section",
    "UnitCurves",
    "UnitNumbers",
    "View",
    "ViewOfMeasure",
    "sections_of",
    "views",
]


@dataclass(frozen=True)
class ViewOfMeasure:
    """How the datasets of one measure are shown, all of them together."""

    heading: str
    view: Callable[[Mapping[str, xarray.Dataset]], View]
    beside: tuple[str, ...] = ()  # other measures whose datasets the view is given too, shown by views of their own


VIEWS = {  # by measure, in the order in which a report shows them
    "sweep": ViewOfMeasure("Models side by side", sweep_view),
    "alarms": ViewOfMeasure("Alarms", alarms_view),
    "monitor": ViewOfMeasure("While it trained", monitor_view, beside=("alarms",)),
    "history": ViewOfMeasure("Training", history_view),
    "profile": ViewOfMeasure("Profile", profile_view),
    "spectra": ViewOfMeasure("Singular values", spectra_view),
    "leading": ViewOfMeasure("Leading singular values", leading_view),
    "normality": ViewOfMeasure("Eigenvalues", normality_view),
    "law": ViewOfMeasure("The exact law", law_view),
    "stability": ViewOfMeasure("Perturbations", stability_view),
    "depth_use": ViewOfMeasure("Use of depth", depth_use_view),
    "streams": ViewOfMeasure("Residual streams", streams_view),
    "alignment": ViewOfMeasure("Residual alignment", alignment_view),
    "coupling": ViewOfMeasure("Block coupling", coupling_view),
    "lens": ViewOfMeasure("Jacobian lens", lens_view),
    "trajectories": ViewOfMeasure("Trajectories", trajectories_view),
    "collapse": ViewOfMeasure("Neural collapse", collapse_view),
    "verification": ViewOfMeasure("Tests of the linearisation", verification_view),
    "conditioning": ViewOfMeasure("Conditioning", conditioning_view),
    "curvature": ViewOfMeasure("Curvature", curvature_view),
    "distributions": ViewOfMeasure("Activations, weights and gradients", distributions_view),
}

ABOUT_PLAIN = (
    "No view is installed for datasets of this kind{kind}, so they are shown as plain tables: one row per variable, "
    "with its dimensions, and the smallest, mean and largest of its finite values. The values are in data/{name}.nc."
)


@dataclass(frozen=True)
class Section:
    """What a report shows of one measure."""

    measure: str
    heading: str
    view: View
    failure: Exception | None = None  # raised by the view, which is then empty


def sections_of(datasets: Mapping[str, xarray.Dataset]) -> list[Section]:
    """In the order of the views, large networks first. A view that fails leaves its section empty and marked."""
    ordered = sorted(datasets.items(), key=lambda item: -int(item[1].attrs.get("large", 0)))
    by_measure: dict[str, dict[str, xarray.Dataset]] = {}
    for name, data in ordered:
        if "measure" in data.attrs or "part" not in data.attrs:  # not a piece of another dataset
            by_measure.setdefault(str(data.attrs.get("measure", "")), {})[name] = data
    known = VIEWS if VIEWS.keys() >= by_measure.keys() else {**VIEWS, **registered_views(frozenset(VIEWS))}
    measures = [*(measure for measure in known if measure in by_measure), *sorted(by_measure.keys() - known.keys())]
    return [_section(measure, _given(measure, by_measure, known), known) for measure in measures]


def _given(
    measure: str, by_measure: Mapping[str, dict[str, xarray.Dataset]], known: Mapping[str, ViewOfMeasure]
) -> dict[str, xarray.Dataset]:
    """The datasets of a measure, and those that its view wants beside them."""
    beside = known[measure].beside if measure in known else ()
    others = [data for other in beside for data in by_measure.get(other, {}).items()]
    return by_measure[measure] | dict(others)


def _section(measure: str, datasets: Mapping[str, xarray.Dataset], known: Mapping[str, ViewOfMeasure]) -> Section:
    if measure not in known:
        return Section(measure or "other", measure or "Other datasets", plain_view(datasets))
    shown = known[measure]
    try:
        return Section(measure, shown.heading, shown.view(datasets))
    except Exception as error:  # a bug in one view: the rest of the report is worth having
        failure = _as_bug(error)
        failure.add_note(f"while the report was made of data/{', data/'.join(datasets)} (measure '{measure}')")
        return Section(measure, shown.heading, View(), failure)


def _as_bug(error: Exception) -> Exception:
    """A view has its datasets from a run folder, not from a user: what it refuses is no bad input of a command."""
    if not isinstance(error, SkipscopeError):
        return error
    failure = RuntimeError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def views(datasets: Mapping[str, xarray.Dataset]) -> list[View]:
    """Of all sections; a view that fails raises."""
    sections = sections_of(datasets)
    for section in sections:
        if section.failure is not None:
            raise section.failure
    return [section.view for section in sections]


def plain_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    """Of datasets that no view knows: their variables with their sizes and ranges."""
    return View([_table(name, data) for name, data in datasets.items()])


def _table(name: str, data: xarray.Dataset) -> Table:
    measure = str(data.attrs.get("measure", ""))
    about = ABOUT_PLAIN.format(kind=f" (measure '{measure}')" if measure else "", name=name)
    rows = [[str(key), *_row(values)] for key, values in data.data_vars.items()]
    columns = ["variable", "dimensions", "values", "smallest", "mean", "largest", "not finite"]
    return Table(f"Dataset {name}", columns, rows, about, names=2)


def _row(values: xarray.DataArray) -> list[str]:
    dimensions = " x ".join(f"{name} {size}" for name, size in values.sizes.items()) or "one value"
    if values.dtype.kind not in "biuf":
        return [dimensions, str(values.size), "-", "-", "-", "-"]
    numbers = values.values.astype(float).ravel()
    finite = numbers[numpy.isfinite(numbers)]
    shown = [finite.min(), finite.mean(), finite.max()] if finite.size else [numpy.nan] * 3
    return [dimensions, str(values.size), *(number(float(value)) for value in shown), str(numbers.size - finite.size)]
