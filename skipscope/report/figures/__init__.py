"""Figures from labelled datasets: one module a kind of measurement, their common look in `style`."""

from skipscope.report.figures.alignment import alignment, coupling, decay, energy
from skipscope.report.figures.collapse import collapse
from skipscope.report.figures.conditioning import conditioning, gradient_ranks
from skipscope.report.figures.curves import profile, training
from skipscope.report.figures.emergence import collapse_in_training, counterfactuals, emergence
from skipscope.report.figures.export import save
from skipscope.report.figures.hessian import hessian
from skipscope.report.figures.histograms import distributions
from skipscope.report.figures.law import law
from skipscope.report.figures.layer_conditions import hidden_conditions, rank_shares, weight_conditions
from skipscope.report.figures.noise import mean_shares, mixture_histograms, mixtures, shown_mixtures
from skipscope.report.figures.projections import projections
from skipscope.report.figures.scaling import plateau
from skipscope.report.figures.spectra import depth, middle_units, proportions, scree
from skipscope.report.figures.stability import growth, prediction, shown_images
from skipscope.report.figures.trajectories import steps, straightness, trajectories
from skipscope.report.figures.twins import generalisation, twin_accuracies, twin_curves

__all__ = [
    "alignment",
    "collapse",
    "collapse_in_training",
    "conditioning",
    "counterfactuals",
    "coupling",
    "decay",
    "depth",
    "distributions",
    "emergence",
    "energy",
    "generalisation",
    "gradient_ranks",
    "growth",
    "hessian",
    "hidden_conditions",
    "law",
    "mean_shares",
    "middle_units",
    "mixture_histograms",
    "mixtures",
    "plateau",
    "prediction",
    "profile",
    "projections",
    "proportions",
    "rank_shares",
    "save",
    "scree",
    "shown_images",
    "shown_mixtures",
    "steps",
    "straightness",
    "training",
    "trajectories",
    "twin_accuracies",
    "twin_curves",
    "weight_conditions",
]
