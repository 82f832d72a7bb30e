"""Run folders: what was done, with what, and what came out; and claims with their verdicts."""

from skipscope.renamed import keep_old_names
from skipscope.runs.datasets import dataset_bytes, read_dataset
from skipscope.runs.decisions import Decision
from skipscope.runs.files import as_json, digest, plain
from skipscope.runs.folder import RunFolder
from skipscope.runs.saved import SavedRun, load_run
from skipscope.runs.whole_files import write_whole

__all__ = [
    "Decision",
    "RunFolder",
    "SavedRun",
    "as_json",
    "dataset_bytes",
    "digest",
    "load_run",
    "plain",
    "read_dataset",
    "write_whole",
]

keep_old_names(__name__)
