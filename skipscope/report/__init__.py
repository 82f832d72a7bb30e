"""Figures and the HTML report."""

from skipscope.report.page import Table, page

__all__ = ["Table", "page"]
