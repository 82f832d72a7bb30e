"""Tasks as jobs of Slurm, one job per task, submitted and watched by submitit.

Tasks and results pass through a folder that all machines see: SKIPSCOPE_CACHE, or the user's cache folder. A job that
Slurm reports as failed, preempted or out of its time without a result has lost its worker. With cluster=local submitit
starts processes on this machine instead, which is for trying things out.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from skipscope.errors import InputError, first_line
from skipscope.runs.executors.engine import Engine, import_path
from skipscope.runs.executors.task import Lost, Outcome, Task, outcome_in, reply_to
from skipscope.runs.files import cache_root

WATCHED = {"local": 0.1}  # seconds between looks at the jobs, by cluster; submitit asks Slurm itself less often
USUAL_PAUSE = 2.0
MINUTES = 60  # that a job may take where timeout_min is not given


class Slurm(Engine):
    def __init__(self, workers: int, threads: int, gpus_per_task: float, options: Mapping[str, str]) -> None:
        """options: cluster (slurm, or local for processes on this machine), timeout_min, mem_gb; partition, account and
        whatever else submitit knows as slurm_NAME."""
        submitit: Any = importlib.import_module("submitit")
        self.capacity, self._threads = workers, threads
        self._submitit = submitit
        cluster = dict(options).pop("cluster", "slurm")
        self._pause = WATCHED.get(cluster, USUAL_PAUSE)
        self._jobs: dict[int, Any] = {}
        place = cache_root() / "slurm"
        try:
            place.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(dir=place))
        except OSError as error:
            raise InputError(
                f"tasks for Slurm pass through {place}, where nothing can be written ({error.strerror}); name another "
                "folder that all machines see in the environment variable SKIPSCOPE_CACHE"
            ) from error
        try:
            self._executor = submitit.AutoExecutor(folder=self._folder, cluster=cluster)
            self._executor.update_parameters(**_parameters(options, threads, int(gpus_per_task)))
        except Exception as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            shown = ", ".join(f"{key}={value}" for key, value in options.items())
            raise InputError(f"options of Slurm ({shown}): submitit refuses them: {first_line(error)}") from error

    def start(self, number: int, task: Task) -> None:
        payload = task.payload(self._threads)
        with _environment(self._threads), _interruptible():
            try:
                self._jobs[number] = self._executor.submit(reply_to, payload)
            except self._submitit.core.utils.FailedJobError as error:
                raise InputError(f"Slurm takes no job: {first_line(error)}") from error

    def ended(self) -> list[tuple[int, Outcome]]:
        while True:
            over = [number for number, job in self._jobs.items() if job.done()]
            if over:
                return [(number, self._outcome(self._jobs.pop(number))) for number in over]
            time.sleep(self._pause)

    def stop(self) -> None:
        for job in self._jobs.values():
            with contextlib.suppress(Exception):  # one that is gone has ended too
                job.cancel(check=False)
        self._jobs.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _outcome(self, job: Any) -> Outcome:
        try:
            return outcome_in(job.result())
        except Exception as error:  # whatever submitit makes of a job without a result
            state = str(job.state)
            reason = f"Slurm's job {job.job_id} ended as {state} ({first_line(error)})"
            return Lost(reason, of_memory=state.startswith("OUT_OF_ME"))


def _parameters(options: Mapping[str, str], threads: int, gpus: int) -> dict[str, Any]:
    found: dict[str, Any] = {"timeout_min": MINUTES, "cpus_per_task": threads, "gpus_per_node": gpus, "nodes": 1}
    for name, text in options.items():
        value: Any = int(text) if text.isdecimal() else text
        if name in ("timeout_min", "mem_gb"):
            found[name] = value
        elif name != "cluster":
            found[name if name.startswith("slurm_") else f"slurm_{name}"] = value
    return found


@contextlib.contextmanager
def _environment(threads: int) -> Any:
    """A job inherits it from where it is submitted."""
    changed = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": import_path(),
        "PYTHONSAFEPATH": "1",  # not from the folder that the job happens to be in
    }
    former = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """What a shell runs in the background ignores SIGINT, and so would the jobs of a local cluster, which submitit
    cancels by this signal. Python lets only the main thread change it."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN and current_thread() is main_thread()
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
