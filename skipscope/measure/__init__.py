"""What the papers measure: functions from a trunk and a batch to a labelled dataset."""

from skipscope.measure.profile import profile

__all__ = ["profile"]
