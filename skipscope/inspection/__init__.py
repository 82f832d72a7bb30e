"""All measurements on one model, within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.inspection.inline import Report, report
    from skipscope.inspection.inspecting import inspect
    from skipscope.inspection.result import Result, load

__all__ = ["Report", "Result", "inspect", "load", "report"]

defer(__name__, {"inline": "Report report", "inspecting": "inspect", "result": "Result load"})
