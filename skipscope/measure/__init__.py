"""What the papers measure: functions from a trunk and a batch to a labelled dataset."""

from skipscope.measure.alignment import alignment
from skipscope.measure.alignment_summary import DepthFit, alignment_summary, depth_fit
from skipscope.measure.collapse import collapse
from skipscope.measure.conditioning import conditioning
from skipscope.measure.coupling import coupling
from skipscope.measure.curvature import curvature
from skipscope.measure.depth_use import depth_use
from skipscope.measure.law import law
from skipscope.measure.lens import lens
from skipscope.measure.normality import normality
from skipscope.measure.profile import profile
from skipscope.measure.spectra import leading, spectra
from skipscope.measure.stability import stability
from skipscope.measure.streams import streams
from skipscope.measure.trajectories import trajectories
from skipscope.measure.verification import verification
from skipscope.renamed import keep_old_names

__all__ = [
    "DepthFit",
    "alignment",
    "alignment_summary",
    "collapse",
    "conditioning",
    "coupling",
    "curvature",
    "depth_fit",
    "depth_use",
    "law",
    "leading",
    "lens",
    "normality",
    "profile",
    "spectra",
    "stability",
    "streams",
    "trajectories",
    "verification",
]

keep_old_names(__name__)
