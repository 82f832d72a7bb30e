"""Figures from labelled datasets: one module a kind of measurement, their common look in `style`."""

from skipscope.report.figures.curves import curves_figure, profile_figure
from skipscope.report.figures.law import law_figure
from skipscope.report.figures.noise import histograms_figure, mean_shares, mixtures_figure, shown_mixtures
from skipscope.report.figures.projections import projections_figure
from skipscope.report.figures.scaling import plateau_figure
from skipscope.report.figures.spectra import proportions_figure, scree_figure
from skipscope.report.figures.stability import growth_figure, prediction_figure, shown_images
from skipscope.report.figures.style import COLOURS, DASHES, GREY, LOGARITHMIC_FROM, MARKERS, SHOWN_POINTS

__all__ = [
    "COLOURS",
    "DASHES",
    "GREY",
    "LOGARITHMIC_FROM",
    "MARKERS",
    "SHOWN_POINTS",
    "curves_figure",
    "growth_figure",
    "histograms_figure",
    "law_figure",
    "mean_shares",
    "mixtures_figure",
    "plateau_figure",
    "prediction_figure",
    "profile_figure",
    "projections_figure",
    "proportions_figure",
    "scree_figure",
    "shown_images",
    "shown_mixtures",
]
