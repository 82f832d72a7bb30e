"""Linear operators: Jacobians of units, branches, stages and spans, Hessians, and what can be made of them."""

from skipscope.linear.hessian import Hessian
from skipscope.linear.jacobian import Jacobian
from skipscope.linear.known_spectrum import KnownSpectrum
from skipscope.linear.operator import Dense, Operator
from skipscope.linear.span_jacobian import jacobian
from skipscope.linear.verify import Verification, verify

__all__ = ["Dense", "Hessian", "Jacobian", "KnownSpectrum", "Operator", "Verification", "jacobian", "verify"]
