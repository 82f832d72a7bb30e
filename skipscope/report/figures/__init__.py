"""Figures from labelled datasets: one module per kind of measurement, their common look in `style`."""

from skipscope.report.document import save
from skipscope.report.figures.alignment import alignment, coupling, decay, energy
from skipscope.report.figures.conditioning import conditioning, hessian
from skipscope.report.figures.curves import (
    collapse,
    gradient_ranks,
    profile,
    steps,
    straightness,
    training,
    trajectories,
)
from skipscope.report.figures.distributions import distributions
from skipscope.report.figures.monitored import monitored
from skipscope.report.figures.spectra import depth, law, proportions, scree
from skipscope.report.figures.stability import growth, prediction, projections
from skipscope.report.figures.streams import streams
from skipscope.report.figures.sweeps import sweep
from skipscope.report.figures.together import together

__all__ = [
    "alignment",
    "collapse",
    "conditioning",
    "coupling",
    "decay",
    "depth",
    "distributions",
    "energy",
    "gradient_ranks",
    "growth",
    "hessian",
    "law",
    "monitored",
    "prediction",
    "profile",
    "projections",
    "proportions",
    "save",
    "scree",
    "steps",
    "straightness",
    "streams",
    "sweep",
    "together",
    "training",
    "trajectories",
]
