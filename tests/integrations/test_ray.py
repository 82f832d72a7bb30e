"""On a real Ray cluster of two nodes on this machine: the same bits as in one process, also when a node is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skipscope as ss
from skipscope.errors import InputError, SkipscopeError
from skipscope.runs import dataset_bytes
from skipscope.runs.executors import Execution, Task, perform_all, performed
from tests.runs import tasks
from tests.runs.tasks import task

ray: Any = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
PATIENCE = 120.0  # seconds


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Any]:
    """A head without CPUs, on which nothing is computed, and two nodes with one each."""
    from ray.cluster_utils import Cluster

    former = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    memory = {"object_store_memory": 80 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **memory})
    try:
        made.nodes = [made.add_node(num_cpus=1, **memory) for _ in range(2)]
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        os.environ["PYTHONPATH"] = former
        assert children() == []


def children() -> list[str]:
    """Processes of Ray that this one started and that are still there after some seconds."""
    deadline = time.monotonic() + 20
    while True:
        started = [place for place in Path("/proc").iterdir() if _parent(place) == os.getpid()]
        found = [line for line in map(_command, started) if "ray" in line]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (OSError, ValueError):
        return ""


def results_of(execution: Execution, work: list[Task]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    perform_all(work, execution, lambda done, value: found.update({done.key: dataset_bytes(value)}))
    return found


def test_a_sweep_on_ray(cluster: Any, tmp_path: Path) -> None:
    models = ["skipscope:resnet8-digits-n4", "skipscope:resnet14-digits-n4", "torchvision:resnet999"]
    execution = Execution("ray", 2, address=cluster.address)
    handler = signal.getsignal(signal.SIGTERM)
    there = ss.sweep(models, measures="profile", executor=execution, out=tmp_path / "there")
    assert there.identical(ss.sweep(models, measures="profile"))
    assert signal.getsignal(signal.SIGTERM) is handler  # Ray has one of its own


def test_errors_and_lost_workers_are_those_of_every_executor(cluster: Any, tmp_path: Path) -> None:
    execution = Execution("ray", 1, address=cluster.address, retries=1)
    with pytest.raises(InputError, match="number 3 is refused"):
        perform_all([task(tasks.refuse, number=3)], execution, lambda *_: None)
    with pytest.raises(SkipscopeError, match="its worker was lost 2 times"):
        perform_all([task(tasks.lose, marks=str(tmp_path), times=9)], execution, lambda *_: None)
    with pytest.raises(InputError, match="a task asks for 1 GPUs, and the largest machine"):
        perform_all(
            [task(tasks.sleep, seconds=0)], Execution("ray", 1, cluster.address, gpus_per_task=1), lambda *_: None
        )


def test_stopping_ends_the_tasks_on_the_nodes(cluster: Any, tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def interrupted(*_: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (mark.is_file() and mark.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        raise KeyboardInterrupt

    work = [task(tasks.sleep, seconds=0), task(tasks.sleep, seconds=600, mark=str(mark))]
    with pytest.raises(KeyboardInterrupt):
        perform_all(work, Execution("ray", 2, cluster.address), interrupted)
    pid, deadline = int(mark.read_text()), time.monotonic() + 30
    while "skipscope" in _command(Path(f"/proc/{pid}")) or "ray::" in _command(Path(f"/proc/{pid}")):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(("address", "message"), [("127.0.0.1:1", "Ray cannot be reached"), ("here", "HOST:PORT")])
def test_a_wrong_address_is_one_message(address: str, message: str) -> None:
    with pytest.raises(InputError, match=f"address='{address}': .*{message}"):
        perform_all([task(tasks.sleep, seconds=0)], Execution("ray", 1, address), lambda *_: None)


def test_two_nodes_one_of_which_is_killed_give_the_same_bits(cluster: Any, tmp_path: Path) -> None:
    numbers = [task(tasks.spectrum_of, size=size) for size in (5, 60, 20, 33)]
    slow = [task(tasks.slow_spectrum_of, size=size, seconds=3.0, mark=str(tmp_path / str(size))) for size in (7, 9)]
    here = results_of(Execution(), [*slow, *numbers])

    for mark in tmp_path.iterdir():
        mark.unlink()
    execution = Execution("ray", 2, address=cluster.address)
    killed: list[bool] = []

    def kill_one() -> None:
        deadline = time.monotonic() + PATIENCE
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:  # both nodes are at work
            time.sleep(0.05)
        cluster.remove_node(cluster.nodes[0], allow_graceful=False)
        killed.append(True)

    killer = threading.Thread(target=kill_one)
    killer.start()
    there: dict[str, bytes] = {}
    lost: list[str] = []
    for finished in performed([*slow, *numbers], execution):
        assert finished.error is None
        there[finished.task.key] = dataset_bytes(finished.value)
        lost += finished.lost
    killer.join()
    assert killed
    assert there == here
    assert len(lost) == 1  # the task of the node that was killed
    assert "Ray lost its worker" in lost[0]
