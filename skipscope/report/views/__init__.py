"""From datasets to what a report shows of them: one module a kind of measurement.

A dataset says what it is by its attribute `measure`. All datasets of one kind are shown together, so that networks
stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skipscope.report.views.conditions import state_conditions_view, weight_conditions_view
from skipscope.report.views.history import history_view
from skipscope.report.views.law import law_view
from skipscope.report.views.leading import leading_view
from skipscope.report.views.noise import noise_view
from skipscope.report.views.profile import profile_view
from skipscope.report.views.scaling import scaling_view
from skipscope.report.views.spectra import spectra_view
from skipscope.report.views.stability import stability_view
from skipscope.report.views.verification import verification_view
from skipscope.report.views.view import View

if TYPE_CHECKING:
    import xarray

__all__ = ["VIEWS", "View", "views"]

VIEWS: dict[str, Callable[[Mapping[str, xarray.Dataset]], View]] = {
    "history": history_view,
    "profile": profile_view,
    "spectra": spectra_view,
    "leading": leading_view,
    "law": law_view,
    "stability": stability_view,
    "scaling": scaling_view,
    "noise": noise_view,
    "verification": verification_view,
    "weight_conditions": weight_conditions_view,
    "state_conditions": state_conditions_view,
}


def views(datasets: Mapping[str, xarray.Dataset]) -> list[View]:
    """In the order of VIEWS; datasets of a kind that has no view are not shown."""
    found = []
    for measure, view in VIEWS.items():
        of_kind = {name: data for name, data in datasets.items() if data.attrs.get("measure") == measure}
        if of_kind:
            found.append(view(of_kind))
    return found
