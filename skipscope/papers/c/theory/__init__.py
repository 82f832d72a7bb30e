"""Theorems of paper C as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.papers.c.theory.commuting_products import CommutingProduct, commuting_product
from skipscope.papers.c.theory.gradient_rank import LinearGradients, RankOfProduct, linear_gradients, rank_of_product
from skipscope.papers.c.theory.least_squares import PerturbedLeastSquares, proposition3, worst_change
from skipscope.papers.c.theory.random_products import (
    ENTRIES,
    MatrixProduct,
    gaussian_exponents,
    matrix_product,
    random_matrices,
    random_product,
    singular,
    small_branch_exponents,
)
from skipscope.papers.c.theory.residual_isometry import ResidualIsometry, residual_isometry

__all__ = [
    "ENTRIES",
    "CommutingProduct",
    "LinearGradients",
    "MatrixProduct",
    "PerturbedLeastSquares",
    "RankOfProduct",
    "ResidualIsometry",
    "commuting_product",
    "gaussian_exponents",
    "linear_gradients",
    "matrix_product",
    "proposition3",
    "random_matrices",
    "random_product",
    "rank_of_product",
    "residual_isometry",
    "singular",
    "small_branch_exponents",
    "worst_change",
]
