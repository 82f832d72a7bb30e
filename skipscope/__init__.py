"""skipscope shows what the skip connections do inside a network."""

from skipscope.errors import InputError, SkipscopeError, TraceError
from skipscope.inspection import Result, inspect, load
from skipscope.linear import Dense, Jacobian, Operator, verify
from skipscope.measure import law, profile, spectra, stability
from skipscope.spectrum import condition_number, eigs, inertia, plan, singular_values, spectral_density, svd
from skipscope.trace import Point, Segment, Span, Stage, Trunk, Unit, trace

__version__ = "0.1.0"

__all__ = [
    "Dense",
    "InputError",
    "Jacobian",
    "Operator",
    "Point",
    "Result",
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
    "inspect",
    "law",
    "load",
    "plan",
    "profile",
    "singular_values",
    "spectra",
    "spectral_density",
    "stability",
    "svd",
    "trace",
    "verify",
]
