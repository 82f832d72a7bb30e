"""Executors: the same results wherever tasks are computed, lost workers, errors, and the end of everything."""

from __future__ import annotations

import contextlib
import io
import os
import random
import time
from pathlib import Path

import numpy
import pytest
import torch

from skipscope.errors import InputError, SkipscopeError
from skipscope.runs import dataset_bytes
from skipscope.runs.executors import Execution, Task, perform_all, performed
from skipscope.runs.executors.driving import _given_up
from skipscope.runs.executors.processes import gpu_shares
from skipscope.runs.executors.task import Failed, outcome_in
from skipscope.runs.executors.worker import LENGTH, read_message, write_message
from tests.runs import tasks
from tests.runs.tasks import task

HERE, PROCESSES = Execution(), Execution("processes", 2)


def results_of(execution: Execution, work: list[Task]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    perform_all(work, execution, lambda done, value: found.update({done.key: dataset_bytes(value)}))
    return found


def is_alive(pid: int) -> bool:
    """A process that has ended and that nobody has asked about yet is not alive."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_results_are_the_same_bits_here_and_in_two_processes() -> None:
    work = [task(tasks.spectrum_of, size=size) for size in (5, 60, 20, 33)]
    here = results_of(HERE, work)
    assert len(set(here.values())) == len(work)
    assert results_of(PROCESSES, work) == here
    assert results_of(HERE, work[::-1]) == here  # whatever was computed before


@pytest.mark.slow
def test_a_lost_worker_costs_its_task_once_more(tmp_path: Path) -> None:
    lost, other = task(tasks.lose, marks=str(tmp_path), times=1), task(tasks.sleep, seconds=0)
    found = {finished.task.key: finished for finished in performed([lost, other], PROCESSES)}
    assert found[lost.key].value == "attempt 1"
    assert found[lost.key].lost == ("its process was killed by SIGKILL",)
    assert found[other.key].value == 0
    notes: list[str] = []
    perform_all([task(tasks.sleep, seconds=0)], HERE, lambda *_: None, note=notes.append)
    assert notes == []


@pytest.mark.slow
def test_a_task_is_given_up_after_the_stated_number_of_lost_workers(tmp_path: Path) -> None:
    execution = Execution("processes", 1, retries=1)
    with pytest.raises(SkipscopeError, match=r"its worker was lost 2 times .its process was killed by SIGKILL."):
        perform_all([task(tasks.lose, marks=str(tmp_path), times=9)], execution, lambda *_: None)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "execution", [pytest.param(HERE, id="here"), pytest.param(PROCESSES, id="processes", marks=pytest.mark.slow)]
)
def test_an_error_of_a_task_is_its_result_and_not_tried_again(execution: Execution) -> None:
    with pytest.raises(InputError, match=r"^number 3 is refused$"):
        perform_all([task(tasks.refuse, number=3)], execution, lambda *_: None)
    errors: list[str] = []
    done: list[float] = []
    work = [task(tasks.refuse, number=1), task(tasks.sleep, seconds=0), task(tasks.fail)]
    perform_all(work, execution, lambda _, value: done.append(value), lambda _, error: errors.append(repr(error)))
    assert sorted(errors) == ["InputError('number 1 is refused')", "ZeroDivisionError('a bug')"]
    assert done == [0]


@pytest.mark.slow
def test_stopping_ends_the_tasks_that_are_under_way(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    work = [task(tasks.sleep, seconds=0), task(tasks.sleep, seconds=600, mark=str(mark))]

    def interrupted(*_: object) -> None:
        wait_until(lambda: mark.is_file() and mark.read_text())
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        perform_all(work, PROCESSES, interrupted)
    assert time.monotonic() - start < 60
    assert not is_alive(int(mark.read_text()))


def test_tasks_are_taken_when_there_is_room_for_them() -> None:
    taken: list[int] = []

    def coming() -> object:
        for number in range(50):
            taken.append(number)
            yield task(tasks.sleep, seconds=0)

    with contextlib.closing(performed(coming(), HERE)) as results:  # type: ignore[type-var, arg-type]
        next(results)
        assert len(taken) <= 2
    assert list(performed([], PROCESSES)) == []


def test_what_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot be sent to another process"):
        perform_all([Task("one", lambda: 1, {}, "0" * 64)], PROCESSES, lambda *_: None)
    monkeypatch.setattr(tasks.sleep, "__module__", "__main__")
    with pytest.raises(InputError, match="put it into a module of its own"):
        perform_all([task(tasks.sleep, seconds=0)], PROCESSES, lambda *_: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "procesess"}, "did you mean processes"),
        ({"executor": "here", "workers": 2}, "choose executor='processes'"),
        ({"executor": "processes", "workers": 0}, "workers=0: expected a whole number from 1"),
        ({"executor": "processes", "address": "auto"}, "choose executor='ray' too"),
        ({"executor": "ray", "slurm": {"partition": "gpu"}}, "choose executor='slurm' too"),
        ({"executor": "processes", "gpus_per_task": 1.5}, "a part of a GPU such as 0.5"),
    ],
)
def test_wrong_choices_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Execution(**options)  # type: ignore[arg-type]


def test_a_library_that_is_not_installed_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for executor, library in (("ray", "ray"), ("slurm", "submitit")):
        with pytest.raises(InputError, match=f"needs {library}, which is not installed; pip install"):
            Execution(executor)


def test_every_worker_sees_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,4")
    assert gpu_shares(2, 0) == ["", ""]
    assert gpu_shares(3, 1) == ["0", "1", "4"]
    assert gpu_shares(5, 0.5) == ["0", "0", "1", "1", "4"]
    assert gpu_shares(1, 2) == ["0,1"]
    with pytest.raises(InputError, match="this machine has 3 GPUs, enough for 1"):
        gpu_shares(2, 2)
    with pytest.raises(InputError, match="1 worker of that share was asked for"):
        gpu_shares(1, 4)


@pytest.mark.slow
def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Even where that was killed and could end nothing itself."""
    import subprocess
    import sys

    mark = tmp_path / "pid"
    code = (
        "from skipscope.runs.executors import Execution, perform_all\nfrom tests.runs import tasks\n"
        f"work = [tasks.task(tasks.sleep, seconds=600, mark={str(mark)!r})]\n"
        "perform_all(work, Execution('processes', 1), print)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        wait_until(lambda: mark.is_file() and mark.read_text(), 60)
    finally:
        driver.kill()
        driver.wait()
    wait_until(lambda: not is_alive(int(mark.read_text())))


def test_a_worker_imports_and_prints_as_the_user_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed while it starts is no answer, and modules in the current folder are not in the way."""
    site, current = tmp_path / "site", tmp_path / "current"
    site.mkdir()
    current.mkdir()
    (site / "sitecustomize.py").write_text("print('a long greeting to whoever reads this', flush=True)\n")
    (current / "queue.py").write_text("raise ImportError('this is not the queue you want')\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(current)
    work = [task(tasks.sleep, seconds=0)]
    assert [done.value for done in performed(work, Execution("processes", 1, retries=0))] == [0]


def test_a_message_ends_where_the_stream_does_and_has_a_believable_length() -> None:
    stream = io.BytesIO()
    write_message(stream, b"content")
    whole = stream.getvalue()
    assert read_message(io.BytesIO(whole)) == b"content"
    assert read_message(io.BytesIO(whole[:-1])) is None
    assert read_message(io.BytesIO(whole[: LENGTH - 1])) is None
    assert read_message(io.BytesIO(b"some words that were printed")) is None
    assert read_message(io.BytesIO((1 << 39).to_bytes(LENGTH, "big") + b"not so much")) is None


@pytest.mark.slow
def test_a_lost_worker_is_noticed_though_its_child_holds_the_pipe() -> None:
    start = time.monotonic()
    with pytest.raises(
        SkipscopeError, match=r"lost once .its process was killed by SIGTERM.; see what the worker wrote"
    ):
        perform_all([task(tasks.die_with_a_child)], Execution("processes", 1, retries=0), lambda *_: None)
    assert time.monotonic() - start < 15


def test_memory_is_blamed_only_where_the_system_killed() -> None:
    one = task(tasks.fail)
    assert "lack of memory" in str(_given_up(one, ("killed by SIGKILL",), of_memory=True))
    assert "lack of memory" not in str(_given_up(one, ("exit code 1",), of_memory=False))


def test_a_task_draws_the_same_numbers_whatever_the_program_has_set() -> None:
    def drawn() -> object:
        return next(performed([task(tasks.draw)], HERE)).value

    first = drawn()
    torch.set_default_dtype(torch.float64)
    try:
        random.seed(1)
        numpy.random.seed(1)
        states = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
        assert drawn() == first
        assert torch.get_default_dtype() == torch.float64
        assert (random.getstate(), numpy.random.get_state()[1].tolist()) == states  # type: ignore[index]
    finally:
        torch.set_default_dtype(torch.float32)
    assert first[2] == "torch.float32"  # type: ignore[index]


def test_a_task_that_leaves_and_a_reply_that_cannot_be_read_are_failures() -> None:
    with pytest.raises(InputError, match=r"ends the program .sys.exit.3..; take that out"):
        perform_all([task(tasks.leave)], HERE, lambda *_: None)
    outcome = outcome_in(b"nothing that was pickled")
    assert isinstance(outcome, Failed)
    assert "the result cannot be read" in str(outcome.error)


def test_slurm_needs_a_cache_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipscope.runs.executors.slurm import Slurm

    (tmp_path / "file").touch()
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("importlib.import_module", lambda name: None)
    with pytest.raises(InputError, match=r"nothing can be written .* SKIPSCOPE_CACHE"):
        Slurm(1, 1, 0, {"cluster": "local"})
