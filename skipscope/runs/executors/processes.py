"""Several processes on this machine, each with a task at a time.

A process that ends in the middle of its task, because the system killed it for its memory or for any other reason,
costs that task alone: another process takes its place. Where tasks ask for GPUs, a process sees those that are its own.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from skipscope.errors import InputError
from skipscope.runs.executors.engine import Engine, import_path
from skipscope.runs.executors.task import Lost, Outcome, Task, outcome_in
from skipscope.runs.executors.worker import read_message, write_message
from skipscope.wording import counted

WORKER = "skipscope.runs.executors.worker"
PATIENCE = 1.0  # seconds between looks at the clock while nothing ends; a signal is noticed at once
STANDARD_ERROR = 2  # where a worker's prints go
ENDING = 5.0  # seconds that a process has to disappear after it was killed


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    gpus: str  # as CUDA_VISIBLE_DEVICES has them
    number: int | None = None  # of its task
    gone: bool = False  # its process had ended when it was last looked at

    def read(self, answers: int, ended: queue.Queue[tuple[_Worker, bytes | None]]) -> None:
        """In a thread of its own: every answer, and None when there will be no more, whatever happens."""
        try:
            with os.fdopen(answers, "rb") as stream:
                while (reply := read_message(stream)) is not None:
                    ended.put((self, reply))
        finally:
            ended.put((self, None))


class Processes(Engine):
    def __init__(self, workers: int, threads: int, gpus_per_task: float = 0) -> None:
        self.capacity = workers
        self._threads = threads
        self._gpus = gpu_shares(workers, gpus_per_task)
        self._workers: list[_Worker] = []
        self._ended: queue.Queue[tuple[_Worker, bytes | None]] = queue.Queue()

    def start(self, number: int, task: Task) -> None:
        payload = task.payload(self._threads)
        worker = next((each for each in self._workers if each.number is None), None) or self._started()
        worker.number = number
        assert worker.process.stdin is not None
        with contextlib.suppress(OSError):  # a process that is gone is noticed by its reader
            write_message(worker.process.stdin, payload)  # type: ignore[arg-type]

    def ended(self) -> list[tuple[int, Outcome]]:
        while True:
            try:
                worker, reply = self._ended.get(timeout=PATIENCE)
            except queue.Empty:
                self._look_for_the_gone()
                continue
            if worker not in self._workers:  # it was known to be gone before its pipe was closed
                continue
            number, worker.number = worker.number, None
            if reply is None:
                self._workers.remove(worker)
                lost = _how_it_ended(worker.process)
                if number is not None:
                    return [(number, lost)]
            elif number is not None:
                return [(number, outcome_in(reply))]

    def _look_for_the_gone(self) -> None:
        """A process that the worker has started may hold its pipe open for long. An answer that was under way has come
        by the second look."""
        for worker in self._workers:
            if worker.gone:
                self._ended.put((worker, None))
            worker.gone = worker.process.poll() is not None

    def stop(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            _how_it_ended(worker.process)
        self._workers.clear()

    def _started(self) -> _Worker:
        taken = [worker.gpus for worker in self._workers]
        gpus = next((share for share in self._gpus if taken.count(share) < self._gpus.count(share)), "")
        threads = str(self._threads)
        environment = os.environ | {
            "PYTHONPATH": import_path(),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "CUDA_VISIBLE_DEVICES": gpus,
        }
        try:
            answers, far_end = os.pipe()
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", WORKER, str(far_end)],  # -P: not from the folder it happens to be in
                    stdin=subprocess.PIPE,
                    stdout=STANDARD_ERROR,
                    pass_fds=(far_end,),
                    env=environment,
                    start_new_session=True,  # Ctrl-C on a terminal reaches the driver, which decides
                )
            except OSError:
                os.close(answers)
                raise
            finally:
                os.close(far_end)
        except OSError as error:
            raise InputError(f"no further process can be started ({error.strerror}); take fewer workers") from error
        worker = _Worker(process, gpus)
        self._workers.append(worker)
        threading.Thread(target=worker.read, args=(answers, self._ended), daemon=True).start()
        return worker


def gpu_shares(workers: int, gpus_per_task: float) -> list[str]:
    """For each worker the GPUs that it sees: those of the machine, each by as many workers as fit."""
    if not gpus_per_task:
        return [""] * workers
    there = visible_gpus()
    if gpus_per_task < 1:
        shares = [gpu for gpu in there for _ in range(int(1 / gpus_per_task))]
    else:
        each = int(gpus_per_task)
        shares = [",".join(there[first : first + each]) for first in range(0, len(there) - each + 1, each)]
    if len(shares) < workers:
        were = "was" if workers == 1 else "were"
        raise InputError(
            f"gpus_per_task={gpus_per_task:g}: {counted(workers, 'worker')} of that share {were} asked for, and this "
            f"machine has {counted(len(there), 'GPU')}, enough for {len(shares)}; take fewer workers or smaller shares"
        )
    return shares[:workers]


def visible_gpus() -> Sequence[str]:
    """Their numbers or names, as CUDA_VISIBLE_DEVICES has them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [one.strip() for one in named.split(",") if one.strip() not in ("", "-1")]
    return [str(number) for number in range(torch.cuda.device_count())]


def _how_it_ended(process: subprocess.Popen[bytes]) -> Lost:
    """And its pipe is closed."""
    by_itself = True
    try:
        code = process.wait(ENDING)
    except subprocess.TimeoutExpired:
        by_itself = False
        process.kill()
        code = process.wait()
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    if not by_itself:
        return Lost("its process sent no more answers, or something that is none")
    if code < 0:
        kinds = {kind.value: kind.name for kind in signal.Signals}
        killer = kinds.get(-code, f"signal {-code}")
        return Lost(f"its process was killed by {killer}", of_memory=-code == signal.SIGKILL)
    return Lost(f"its process ended with exit code {code}")
