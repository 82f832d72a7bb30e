"""Theorems of paper C as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.papers.c.theory.commuting_products import CommutingProduct as CommutingProduct
from skipscope.papers.c.theory.commuting_products import commuting_product as commuting_product
from skipscope.papers.c.theory.gradient_rank import LinearGradients as LinearGradients
from skipscope.papers.c.theory.gradient_rank import RankOfProduct as RankOfProduct
from skipscope.papers.c.theory.gradient_rank import linear_gradients as linear_gradients
from skipscope.papers.c.theory.gradient_rank import rank_of_product as rank_of_product
from skipscope.papers.c.theory.least_squares import PerturbedLeastSquares as PerturbedLeastSquares
from skipscope.papers.c.theory.least_squares import proposition3 as proposition3
from skipscope.papers.c.theory.least_squares import worst_change as worst_change
from skipscope.papers.c.theory.random_products import ENTRIES as ENTRIES
from skipscope.papers.c.theory.random_products import MatrixProduct as MatrixProduct
from skipscope.papers.c.theory.random_products import gaussian_exponents as gaussian_exponents
from skipscope.papers.c.theory.random_products import matrix_product as matrix_product
from skipscope.papers.c.theory.random_products import random_matrices as random_matrices
from skipscope.papers.c.theory.random_products import random_product as random_product
from skipscope.papers.c.theory.random_products import singular as singular
from skipscope.papers.c.theory.random_products import small_branch_exponents as small_branch_exponents
from skipscope.papers.c.theory.residual_isometry import ResidualIsometry as ResidualIsometry
from skipscope.papers.c.theory.residual_isometry import residual_isometry as residual_isometry
