"""Run folders: what was done, with what, and what came out; and claims with their verdicts."""

from skipscope.runs.claims import Claim, Decision
from skipscope.runs.folder import RunFolder, as_json, plain

__all__ = ["Claim", "Decision", "RunFolder", "as_json", "plain"]
