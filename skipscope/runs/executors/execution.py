"""What a user chooses: where tasks are computed, how many at a time, with what."""

from __future__ import annotations

import difflib
import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skipscope.errors import InputError

if TYPE_CHECKING:
    from skipscope.runs.executors.engine import Engine

EXECUTORS = {
    "here": "one task after another in this process",
    "processes": "several processes on this machine",
    "ray": "a Ray cluster",
    "slurm": "Slurm, through submitit",
}
LIBRARIES = {"ray": "ray", "slurm": "submitit"}  # that come with the extra `cluster`
RETRIES = 2  # how often a task is started again whose worker was lost
MOST_WORKERS = 10_000


@dataclass(frozen=True)
class Execution:
    """executor: a key of EXECUTORS. workers: tasks at a time. address: of a Ray cluster; empty for one on this machine.

    gpus_per_task: GPUs, or a part of one, that every task asks for. threads: of the CPU, for every task. retries: how
    often a task is started again whose worker was lost. slurm: options for the jobs, such as partition.
    """

    executor: str = "here"
    workers: int = 1
    address: str = ""
    gpus_per_task: float = 0
    threads: int = 1
    retries: int = RETRIES
    slurm: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            close = difflib.get_close_matches(str(self.executor), EXECUTORS, n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise InputError(f"executor='{self.executor}'{meant}: expected one of {', '.join(EXECUTORS)}")
        for name, least, most in (("workers", 1, MOST_WORKERS), ("threads", 1, 1024), ("retries", 0, 1000)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise InputError(f"{name}={value!r}: expected a whole number from {least} to {most}")
        share = self.gpus_per_task
        if not isinstance(share, (int, float)) or not 0 <= share <= 1024 or (share > 1 and share != int(share)):
            raise InputError(f"gpus_per_task={share!r}: expected 0, a part of a GPU such as 0.5, or a whole number")
        if self.workers > 1 and self.executor == "here":
            raise InputError(f"workers={self.workers}: in this process there is one; choose executor='processes'")
        if self.address and self.executor != "ray":
            raise InputError(f"address='{self.address}' is that of a Ray cluster; choose executor='ray' too")
        if self.slurm and self.executor != "slurm":
            shown = ", ".join(f"{key}={value}" for key, value in self.slurm.items())
            raise InputError(f"{shown}: that is for Slurm; choose executor='slurm' too")
        self._require_engine()

    def _require_engine(self) -> None:
        """What can be known before anything is started."""
        library = LIBRARIES.get(self.executor)
        if library is not None and importlib.util.find_spec(library) is None:
            raise InputError(
                f"executor='{self.executor}' needs {library}, which is not installed; pip install 'skipscope[cluster]'"
            )
        if self.executor == "slurm":
            if self.gpus_per_task != int(self.gpus_per_task):
                raise InputError(f"gpus_per_task={self.gpus_per_task:g}: Slurm gives whole GPUs; ask for 1, or use Ray")
            if self.slurm.get("cluster", "slurm") == "slurm" and shutil.which("sbatch") is None:
                raise InputError(
                    "executor='slurm': there is no sbatch on this machine; start from a login node of Slurm, or try "
                    "it out with slurm cluster=local"
                )

    def engine(self) -> Engine:
        if self.executor == "processes":
            from skipscope.runs.executors.processes import Processes

            return Processes(self.workers, self.threads, self.gpus_per_task)
        if self.executor == "ray":
            from skipscope.runs.executors.ray_cluster import RayCluster

            return RayCluster(self.workers, self.threads, self.gpus_per_task, self.address)
        if self.executor == "slurm":
            from skipscope.runs.executors.slurm import Slurm

            return Slurm(self.workers, self.threads, self.gpus_per_task, self.slurm)
        from skipscope.runs.executors.here import Here

        return Here(self.threads)

    def to_dict(self) -> dict[str, object]:
        """For the record of a run."""
        return {"executor": self.executor, "workers": self.workers, "threads_per_task": self.threads}
