"""A check before training: what it measures, its rules, and what it says."""

from skipscope.check.checking import check
from skipscope.check.forecast import Finding, Forecast

__all__ = ["Finding", "Forecast", "check"]
