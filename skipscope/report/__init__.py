"""Figures and the HTML report."""

from skipscope.report.run_report import write_comparison, write_report
from skipscope.report.table import Table

__all__ = ["Table", "write_comparison", "write_report"]
