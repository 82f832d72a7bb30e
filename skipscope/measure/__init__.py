"""What the papers measure: functions from a trunk and a batch to a labelled dataset."""

from skipscope.measure.conditions import state_conditions, weight_conditions
from skipscope.measure.curvature import curvature
from skipscope.measure.law import law
from skipscope.measure.profile import profile
from skipscope.measure.spectra import spectra
from skipscope.measure.stability import stability
from skipscope.measure.verification import verification

__all__ = [
    "curvature",
    "law",
    "profile",
    "spectra",
    "stability",
    "state_conditions",
    "verification",
    "weight_conditions",
]
