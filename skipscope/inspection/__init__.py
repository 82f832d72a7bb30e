"""All measurements on one model, within a budget."""

from skipscope.inspection.inspecting import inspect
from skipscope.inspection.result import Result, load

__all__ = ["Result", "inspect", "load"]
