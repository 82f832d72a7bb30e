"""Every figure of the reports as a function of a dataset: `ss.plot.scree(dataset)` gives a Plotly figure.

`ss.plot.save(figure, "scree.svg")` writes it as a picture.
"""

from skipscope.report.figures import (
    conditions,
    depth,
    growth,
    hessian,
    law,
    mixture_histograms,
    mixtures,
    plateau,
    prediction,
    profile,
    projections,
    proportions,
    save,
    scree,
    training,
)

__all__ = [
    "conditions",
    "depth",
    "growth",
    "hessian",
    "law",
    "mixture_histograms",
    "mixtures",
    "plateau",
    "prediction",
    "profile",
    "projections",
    "proportions",
    "save",
    "scree",
    "training",
]
