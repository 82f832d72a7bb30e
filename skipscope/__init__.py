"""skipscope shows what the skip connections do inside a network."""

from skipscope.errors import InputError, SkipscopeError, TraceError
from skipscope.trace import Point, Segment, Span, Stage, Trunk, Unit, trace

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "Point",
    "Segment",
    "SkipscopeError",
    "Span",
    "Stage",
    "TraceError",
    "Trunk",
    "Unit",
    "trace",
]
