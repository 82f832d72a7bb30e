"""From datasets to what a report shows of them: one module a kind of measurement.

A dataset says what it is by its attribute `measure`. All datasets of one kind are shown together, so that networks
stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skipscope.errors import InputError
from skipscope.report.views.alignment import alignment_view
from skipscope.report.views.collapse import collapse_view
from skipscope.report.views.conditioning import conditioning_view
from skipscope.report.views.curvature import curvature_view
from skipscope.report.views.emergence import collapse_along_view, emergence_view
from skipscope.report.views.histograms import histograms_view
from skipscope.report.views.history import history_view
from skipscope.report.views.law import law_view
from skipscope.report.views.layer_conditions import gradient_ranks_view, layer_conditions_view
from skipscope.report.views.leading import leading_view
from skipscope.report.views.noise import noise_view
from skipscope.report.views.profile import profile_view
from skipscope.report.views.scaling import scaling_view
from skipscope.report.views.shortcut_hessians import dynamics_view, epochs_view, initial_view
from skipscope.report.views.shortcut_training import learning_view, norms_view, shortcuts_view
from skipscope.report.views.spectra import spectra_view
from skipscope.report.views.stability import stability_view
from skipscope.report.views.theory import small_weights_view, zero_weights_view
from skipscope.report.views.theory_a import straight_lines_view, unconstrained_jacobians_view
from skipscope.report.views.theory_c import products_view
from skipscope.report.views.trajectories import trajectories_view
from skipscope.report.views.twins import drift_view, generalisation_view, twins_view
from skipscope.report.views.verification import verification_view
from skipscope.report.views.view import Curve, Picture, UnitCurves, UnitNumbers, View

if TYPE_CHECKING:
    import xarray

__all__ = ["VIEWS", "Curve", "Picture", "UnitCurves", "UnitNumbers", "View", "views", "views_by_measure"]

VIEWS: dict[str, tuple[str, Callable[[Mapping[str, xarray.Dataset]], View]]] = {  # measure: heading, view
    "history": ("Training", history_view),
    "profile": ("Profile", profile_view),
    "spectra": ("Singular values", spectra_view),
    "leading": ("Leading singular values", leading_view),
    "law": ("The exact law", law_view),
    "stability": ("Perturbations", stability_view),
    "alignment": ("Residual alignment", alignment_view),
    "trajectories": ("Trajectories", trajectories_view),
    "collapse": ("Neural collapse", collapse_view),
    "emergence": ("Alignment of trained networks", emergence_view),
    "collapse_along": ("Neural collapse along training", collapse_along_view),
    "scaling": ("Scaled skips", scaling_view),
    "noise": ("Weights mixed with noise", noise_view),
    "verification": ("Tests of the linearisation", verification_view),
    "conditioning": ("Conditioning", conditioning_view),
    "curvature": ("Curvature", curvature_view),
    "twins": ("Networks with and without skips", twins_view),
    "generalisation": ("Conditioning and generalisation", generalisation_view),
    "drift": ("DiracNets", drift_view),
    "layer_conditions": ("Condition numbers of trained networks", layer_conditions_view),
    "gradient_ranks": ("Ranks of errors and gradients", gradient_ranks_view),
    "distributions": ("Activations, weights and gradients", histograms_view),
    "theory_straight_lines": ("Aligned Jacobians and straight lines", straight_lines_view),
    "theory_unconstrained_jacobians": ("Free Jacobians", unconstrained_jacobians_view),
    "theory_zero_weights": ("The loss at zero weights", zero_weights_view),
    "theory_small_weights": ("Small weights that interpolate", small_weights_view),
    "theory_products": ("Products of many weights", products_view),
    "shortcut_initial": ("Hessians before training", initial_view),
    "shortcut_dynamics": ("Hessians along training", dynamics_view),
    "shortcut_epochs": ("Index and gradient along training", epochs_view),
    "shortcut_learning": ("Learning of n-shortcut networks", learning_view),
    "shortcut_norms": ("Weights, states and branches by depth", norms_view),
    "shortcut_depths": ("Shortcut depth", shortcuts_view),
}


def views_by_measure(datasets: Mapping[str, xarray.Dataset]) -> dict[str, View]:
    """In the order of VIEWS, large networks first; datasets of a kind that has no view are not shown."""
    ordered = dict(sorted(datasets.items(), key=lambda item: -int(item[1].attrs.get("large", 0))))
    found = {}
    for measure, (_, view) in VIEWS.items():
        of_kind = {name: data for name, data in ordered.items() if data.attrs.get("measure") == measure}
        if of_kind:
            try:
                found[measure] = view(of_kind)
            except (IndexError, KeyError, ValueError) as error:
                raise InputError(
                    f"data/{', data/'.join(of_kind)}: not what datasets of the kind '{measure}' are like "
                    f"({type(error).__name__}: {error}); measure again, or remove them"
                ) from error
    return found


def views(datasets: Mapping[str, xarray.Dataset]) -> list[View]:
    return list(views_by_measure(datasets).values())
