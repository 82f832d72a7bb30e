"""A check before training: what it measures, its rules, and what it says."""

from skipscope.check.checking import check
from skipscope.check.forecast import Forecast

__all__ = ["Forecast", "check"]
