"""Theorems of paper A as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.papers.a.theory.linearised_logit import LinearisedLogit, boundary_points, linearised_logit
from skipscope.papers.a.theory.straight_lines import AlignedTrajectory, gamma_growth, inverse_affine, theorem31
from skipscope.papers.a.theory.trace_inequality import TraceInequality, trace_inequality
from skipscope.papers.a.theory.unconstrained_jacobians import LOSSES, Solution, UnconstrainedJacobians, theorem33

__all__ = [
    "LOSSES",
    "AlignedTrajectory",
    "LinearisedLogit",
    "Solution",
    "TraceInequality",
    "UnconstrainedJacobians",
    "boundary_points",
    "gamma_growth",
    "inverse_affine",
    "linearised_logit",
    "theorem31",
    "theorem33",
    "trace_inequality",
]
