"""Tasks on a Ray cluster, or on a Ray of this machine's own where no address is given.

Ray decides which machine a task goes to: each asks for its threads as CPUs, and for its share of a GPU. Its own retries
are off, since the driver counts them for all engines alike; a worker or a machine that Ray reports as gone is a lost
one. skipscope has to be importable on every machine, in the same versions.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from skipscope.errors import InputError, first_line
from skipscope.runs.executors.engine import Engine, import_path
from skipscope.runs.executors.task import Failed, Lost, Outcome, Task, outcome_in, reply_to

CONNECTED_WITHIN = 10.0  # seconds
PATIENCE = 1.0  # seconds that are waited at a time, so that a signal is noticed


class RayCluster(Engine):
    def __init__(self, workers: int, threads: int, gpus_per_task: float, address: str) -> None:
        ray: Any = importlib.import_module("ray")
        self._ray = ray
        self.capacity, self._threads = workers, threads
        self._under_way: dict[Any, int] = {}  # the number of each task, by Ray's name for its result
        self._own = not ray.is_initialized()  # a Ray that the user has started goes on
        if self._own:
            self._connect(address, workers * threads)
        self._require_resources(gpus_per_task)
        environment = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        if not address:  # the same machine: what is importable here is to be importable there
            environment["PYTHONPATH"] = import_path()
        self._remote = ray.remote(reply_to).options(
            num_cpus=threads,
            num_gpus=gpus_per_task,
            max_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment},
        )

    def start(self, number: int, task: Task) -> None:
        self._under_way[self._remote.remote(task.payload(self._threads))] = number

    def ended(self) -> list[tuple[int, Outcome]]:
        ready: list[Any] = []
        while not ready:
            waiting = list(self._under_way)
            ready, _ = self._ray.wait(waiting, num_returns=1, timeout=PATIENCE)
        return [(self._under_way.pop(each), self._outcome(each)) for each in ready]

    def stop(self) -> None:
        for each in self._under_way:
            with contextlib.suppress(Exception):  # one that is gone has ended too
                self._ray.cancel(each, force=True)
        self._under_way.clear()
        if self._own:
            self._ray.shutdown()

    def _outcome(self, reference: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            return outcome_in(self._ray.get(reference))
        except errors.RayTaskError as error:  # before the task began: skipscope is not there, or another version
            return Failed(InputError(f"a Ray worker cannot run tasks of skipscope: {first_line(error.cause)}"))
        except errors.RuntimeEnvSetupError as error:
            return Failed(InputError(f"a Ray worker cannot be set up: {first_line(error)}"))
        except errors.RayError as error:
            reason = f"Ray lost its worker ({type(error).__name__}: {first_line(error)})"
            return Lost(reason, of_memory=isinstance(error, errors.OutOfMemoryError))

    def _connect(self, address: str, cpus: int) -> None:
        options: dict[str, Any] = {"address": address} if address else {"num_cpus": cpus, "include_dashboard": False}
        where = f"address='{address}'" if address else "a Ray of this machine's own"
        if address:
            _require_reachable(address)
        try:
            with _own_signals():
                self._ray.init(**options, configure_logging=False, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise InputError(f"{where}: Ray cannot be reached ({first_line(error)})") from error

    def _require_resources(self, gpus_per_task: float) -> None:
        """A task that asks for more than any machine has would wait for ever."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for what, wanted in (("CPU", float(self._threads)), ("GPU", float(gpus_per_task))):
            most = max((float(node.get(what, 0)) for node in nodes), default=0.0)
            if wanted > most:
                self.stop()
                raise InputError(
                    f"a task asks for {wanted:g} {what}s, and the largest machine of the Ray cluster has {most:g}"
                )


def _require_reachable(address: str) -> None:
    """Ray itself tries for minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto" or "://" in address:
        return
    if not colon or not port.isdecimal():
        raise InputError(f"address='{address}': expected HOST:PORT, auto, or ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port)), CONNECTED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"address='{address}': Ray cannot be reached ({error}); is the head node of a cluster there?"
        ) from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray puts its own handler in the place of the program's, which would end it without marking the run."""
    own = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if own and handler is not None:
            signal.signal(signal.SIGTERM, handler)
