"""The papers' experiments: one folder a paper, one module a study."""

from skipscope.studies.registry import CLAIMS, STUDIES, find
from skipscope.studies.running import Outcome, run_studies
from skipscope.studies.study import PRESETS, Study

__all__ = ["CLAIMS", "PRESETS", "STUDIES", "Outcome", "Study", "find", "run_studies"]
