"""Theorems of the papers as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.theory.commuting_products import CommutingProduct, commuting_product
from skipscope.theory.gradient_rank import LinearGradients, RankOfProduct, linear_gradients, rank_of_product
from skipscope.theory.hessian_at_zero import HessianAtZero, commutation, hessian_at_zero, hessian_from_moments
from skipscope.theory.interpolation import SmallNormNetwork, theorem1
from skipscope.theory.labels import unit_labels
from skipscope.theory.least_squares import PerturbedLeastSquares, proposition3, worst_change
from skipscope.theory.linearised_logit import LinearisedLogit, boundary_points, linearised_logit
from skipscope.theory.moving_unit import LemmaOne, lemma1
from skipscope.theory.random_products import (
    ENTRIES,
    MatrixProduct,
    gaussian_exponents,
    matrix_product,
    random_matrices,
    random_product,
    singular,
    small_branch_exponents,
)
from skipscope.theory.residual_isometry import ResidualIsometry, residual_isometry
from skipscope.theory.sphere_path import SpherePath, lemma2
from skipscope.theory.straight_lines import AlignedTrajectory, gamma_growth, inverse_affine, theorem31
from skipscope.theory.trace_inequality import TraceInequality, trace_inequality
from skipscope.theory.unconstrained_jacobians import LOSSES, Solution, UnconstrainedJacobians, theorem33

__all__ = [
    "ENTRIES",
    "LOSSES",
    "AlignedTrajectory",
    "CommutingProduct",
    "HessianAtZero",
    "LemmaOne",
    "LinearGradients",
    "LinearisedLogit",
    "MatrixProduct",
    "PerturbedLeastSquares",
    "RankOfProduct",
    "ResidualIsometry",
    "SmallNormNetwork",
    "Solution",
    "SpherePath",
    "TraceInequality",
    "UnconstrainedJacobians",
    "boundary_points",
    "commutation",
    "commuting_product",
    "gamma_growth",
    "gaussian_exponents",
    "hessian_at_zero",
    "hessian_from_moments",
    "inverse_affine",
    "lemma1",
    "lemma2",
    "linear_gradients",
    "linearised_logit",
    "matrix_product",
    "proposition3",
    "random_matrices",
    "random_product",
    "rank_of_product",
    "residual_isometry",
    "singular",
    "small_branch_exponents",
    "theorem1",
    "theorem31",
    "theorem33",
    "trace_inequality",
    "unit_labels",
    "worst_change",
]
