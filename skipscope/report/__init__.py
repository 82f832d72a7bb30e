"""Figures and the HTML report."""

from skipscope.report.page import write_page, write_report
from skipscope.report.table import Table

__all__ = ["Table", "write_page", "write_report"]
