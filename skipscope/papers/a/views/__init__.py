"""What a report shows of the datasets of paper A, by measure."""

from skipscope.papers.a.views.doses import doses_view
from skipscope.papers.a.views.emergence import collapse_along_view, emergence_view, population_view
from skipscope.papers.a.views.grids import grids_view
from skipscope.papers.a.views.theory import straight_lines_view, unconstrained_jacobians_view
from skipscope.report.views import ViewOfMeasure

VIEWS = {
    "emergence": ViewOfMeasure("Alignment of trained networks", emergence_view),
    "alignment_grids": ViewOfMeasure("Jacobians in each other's singular vectors, as the paper draws them", grids_view),
    "alignment_doses": ViewOfMeasure("Alignment of networks that differ in one number", doses_view),
    "collapse_along": ViewOfMeasure("Neural collapse along training", collapse_along_view),
    "alignment_population": ViewOfMeasure("Alignment and neural collapse across networks", population_view),
    "theory_straight_lines": ViewOfMeasure("Aligned Jacobians and straight lines", straight_lines_view),
    "theory_unconstrained_jacobians": ViewOfMeasure("Free Jacobians", unconstrained_jacobians_view),
}
