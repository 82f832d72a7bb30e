"""A check before training: what it measures, its rules, and what it says."""

from skipscope.check.checking import check
from skipscope.check.forecast import Forecast
from skipscope.check.short_training import ShortTraining

__all__ = ["Forecast", "ShortTraining", "check"]
