"""skipscope shows what the skip connections do inside a network."""

from skipscope.errors import InputError, SkipscopeError, TraceError
from skipscope.linear import Dense, Jacobian, Operator, verify
from skipscope.measure import profile
from skipscope.spectrum import condition_number, eigs, inertia, plan, singular_values, spectral_density, svd
from skipscope.trace import Point, Segment, Span, Stage, Trunk, Unit, trace

__version__ = "0.1.0"

__all__ = [
    "Dense",
    "InputError",
    "Jacobian",
    "Operator",
    "Point",
    "Segment",
    "SkipscopeError",
    "Span",
    "Stage",
    "TraceError",
    "Trunk",
    "Unit",
    "condition_number",
    "eigs",
    "inertia",
    "plan",
    "profile",
    "singular_values",
    "spectral_density",
    "svd",
    "trace",
    "verify",
]
