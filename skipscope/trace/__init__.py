"""From a model to its trunk: residual units, the segments between them, their states and stages."""

from skipscope.trace.tracing import trace
from skipscope.trace.trunk import Point, Segment, Span, Stage, Trunk, Unit

__all__ = ["Point", "Segment", "Span", "Stage", "Trunk", "Unit", "trace"]
