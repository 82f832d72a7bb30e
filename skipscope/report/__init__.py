"""Figures and the HTML report."""

from skipscope.report.page import page
from skipscope.report.run_report import write_report
from skipscope.report.table import Table

__all__ = ["Table", "page", "write_report"]
