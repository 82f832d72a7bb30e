"""Theorems of the papers as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.theory.hessian_at_zero import HessianAtZero, commutation, hessian_at_zero, hessian_from_moments
from skipscope.theory.interpolation import SmallNormNetwork, theorem1
from skipscope.theory.labels import unit_labels
from skipscope.theory.linearised_logit import LinearisedLogit, boundary_points, linearised_logit
from skipscope.theory.moving_unit import LemmaOne, lemma1
from skipscope.theory.sphere_path import SpherePath, lemma2
from skipscope.theory.straight_lines import AlignedTrajectory, gamma_growth, inverse_affine, theorem31
from skipscope.theory.trace_inequality import TraceInequality, trace_inequality
from skipscope.theory.unconstrained_jacobians import LOSSES, Solution, UnconstrainedJacobians, theorem33

__all__ = [
    "LOSSES",
    "AlignedTrajectory",
    "HessianAtZero",
    "LemmaOne",
    "LinearisedLogit",
    "SmallNormNetwork",
    "Solution",
    "SpherePath",
    "TraceInequality",
    "UnconstrainedJacobians",
    "boundary_points",
    "commutation",
    "gamma_growth",
    "hessian_at_zero",
    "hessian_from_moments",
    "inverse_affine",
    "lemma1",
    "lemma2",
    "linearised_logit",
    "theorem1",
    "theorem31",
    "theorem33",
    "trace_inequality",
    "unit_labels",
]
