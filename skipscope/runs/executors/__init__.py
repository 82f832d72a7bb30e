"""Where the independent pieces of a run are computed: in this process, in several, on a Ray cluster, by Slurm.

`task` says what a piece of work is, `execution` what a user chooses, `driving` takes tasks through an engine; there is
one module per engine. An engine carries bytes to a worker and bytes back, and knows nothing of networks or datasets.
"""

from skipscope.runs.executors.driving import Finished, perform_all, performed
from skipscope.runs.executors.execution import EXECUTORS, Execution
from skipscope.runs.executors.task import Task

__all__ = ["EXECUTORS", "Execution", "Finished", "Task", "perform_all", "performed"]
