"""Theorems of paper A as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.papers.a.theory.linear_branches import LinearBranches as LinearBranches
from skipscope.papers.a.theory.linear_branches import linear_branches as linear_branches
from skipscope.papers.a.theory.linearised_logit import LinearisedLogit as LinearisedLogit
from skipscope.papers.a.theory.linearised_logit import boundary_points as boundary_points
from skipscope.papers.a.theory.linearised_logit import linearised_logit as linearised_logit
from skipscope.papers.a.theory.straight_lines import AlignedTrajectory as AlignedTrajectory
from skipscope.papers.a.theory.straight_lines import gamma_growth as gamma_growth
from skipscope.papers.a.theory.straight_lines import inverse_affine as inverse_affine
from skipscope.papers.a.theory.straight_lines import theorem31 as theorem31
from skipscope.papers.a.theory.trace_inequality import TraceInequality as TraceInequality
from skipscope.papers.a.theory.trace_inequality import trace_inequality as trace_inequality
from skipscope.papers.a.theory.unconstrained_jacobians import LOSSES as LOSSES
from skipscope.papers.a.theory.unconstrained_jacobians import Solution as Solution
from skipscope.papers.a.theory.unconstrained_jacobians import UnconstrainedJacobians as UnconstrainedJacobians
from skipscope.papers.a.theory.unconstrained_jacobians import theorem33 as theorem33
