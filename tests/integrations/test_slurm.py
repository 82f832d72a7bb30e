"""Through submitit, with its executor on this machine in the place of Slurm."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import skipscope as ss
from skipscope.errors import InputError, SkipscopeError
from skipscope.runs import dataset_bytes
from skipscope.runs.executors import Execution, perform_all
from tests.runs import tasks
from tests.runs.tasks import task
from tests.runs.test_executors import is_alive, results_of

pytest.importorskip("submitit")
pytestmark = pytest.mark.integration
LOCAL = {"cluster": "local"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))


def test_jobs_give_the_same_bits_and_leave_no_files(tmp_path: Path) -> None:
    work = [task(tasks.spectrum_of, size=size) for size in (5, 60, 20)]
    assert results_of(Execution("slurm", 2, slurm=LOCAL), work) == results_of(Execution(), work)
    assert list((tmp_path / "cache" / "slurm").iterdir()) == []


def test_a_sweep_by_jobs(tmp_path: Path) -> None:
    models = ["skipscope:resnet8-digits-n4", "torchvision:resnet999"]
    there = ss.sweep(models, executor=Execution("slurm", 2, slurm=LOCAL), out=tmp_path / "run")
    assert dataset_bytes(there) == dataset_bytes(ss.sweep(models))


def test_errors_and_lost_jobs_are_those_of_every_executor(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with pytest.raises(InputError, match="number 3 is refused"):
        perform_all([task(tasks.refuse, number=3)], Execution("slurm", 1, slurm=LOCAL), lambda *_: None)
    execution = Execution("slurm", 1, slurm=LOCAL, retries=1)
    with pytest.raises(SkipscopeError, match="its worker was lost 2 times"):
        perform_all([task(tasks.lose, marks=str(marks), times=9)], execution, lambda *_: None)
    assert len(list(marks.iterdir())) == 2


@pytest.mark.parametrize("background", [False, True])
def test_stopping_cancels_the_jobs(tmp_path: Path, background: bool) -> None:
    """Also where a shell runs the program in the background, which ignores SIGINT."""
    former = signal.signal(signal.SIGINT, signal.SIG_IGN if background else signal.default_int_handler)
    try:
        stop_in_the_middle(tmp_path)
    finally:
        signal.signal(signal.SIGINT, former)


def stop_in_the_middle(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    work = [task(tasks.sleep, seconds=0), task(tasks.sleep, seconds=600, mark=str(mark))]

    def interrupted(*_: object) -> None:
        deadline = time.monotonic() + 120
        while not (mark.is_file() and mark.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform_all(work, Execution("slurm", 2, slurm=LOCAL), interrupted)
    deadline = time.monotonic() + 60
    while is_alive(int(mark.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_slurm_cannot_do_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    work = [task(tasks.sleep, seconds=0)]
    with pytest.raises(InputError, match="Slurm gives whole GPUs"):
        perform_all(work, Execution("slurm", 1, gpus_per_task=0.5, slurm=LOCAL), lambda *_: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="there is no sbatch on this machine"):
        perform_all(work, Execution("slurm", 1), lambda *_: None)
