"""A check before training: what it measures, its rules, and what it says."""

from skipscope.check.checking import check
from skipscope.check.forecast import Forecast
from skipscope.check.remedies import Trial
from skipscope.check.short_training import Attempt, ShortTraining

__all__ = ["Attempt", "Forecast", "ShortTraining", "Trial", "check"]
