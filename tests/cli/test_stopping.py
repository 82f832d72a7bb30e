"""Commands that are stopped from outside: SIGTERM, Ctrl-C while the program starts, a lack of memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from skipscope.cli import main
from skipscope.cli.stopping import ended_by_sigterm, lack_of_memory, not_now
from skipscope.errors import Terminated, out_of_memory
from tests.commands import run_command
from tests.slow import thinned

ROOT = Path(__file__).parents[2]
TRAIN = ("train", "resnet8-digits-n8", "--batch", "256", "--save-every", "0", "--out", "run")


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is before  # whatever a command did


def started(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "skipscope", *words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def test_sigterm_saves_a_checkpoint_and_the_training_goes_on_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice, as some systems send it."""
    running = started(*TRAIN, "--epochs", "2000")
    checkpoint = tmp_path / "run/checkpoints/resnet8-digits-n8.training.safetensors"
    end = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < end and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 143, err
    assert out == ""
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "interrupted; go on with --resume --out run"
    assert record(tmp_path / "run")["status"] == "interrupted"
    assert checkpoint.exists()
    assert not (tmp_path / "run/.lock").exists()
    assert run_command(monkeypatch, "runs", "verify", "run") == 0
    assert "the state of a training that is not done" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["skipscope.papers.kit.study.Study.evidence", "skipscope.runs.folder.dataset_bytes"])
def test_sigterm_in_a_study(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def terminated(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    with monkeypatch.context() as patch:
        patch.setattr(place, terminated)
        assert run_command(patch, "study", "run", "D.law", "--preset", "smoke", "--out", "law") == 143
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted; go on with --resume --out law"
    assert record(tmp_path / "law")["status"] == "interrupted"


def test_a_handler_of_ones_own_is_left_alone() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with ended_by_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_another_thread_installs_no_handler() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with ended_by_sigterm(), not_now():
                pass
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []


def test_sigterm_waits_for_the_imports() -> None:
    done = []

    def load() -> None:
        with ended_by_sigterm(), not_now():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            done.append("imported")

    with pytest.raises(Terminated):
        load()
    assert done == ["imported"]


@pytest.mark.parametrize("delay", thinned([0.05, 0.1, 0.15, 0.2, 0.3, 0.6, 1.2], [0.2]))
def test_ctrl_c_while_the_program_starts_leaves_no_traceback_of_ours(delay: float) -> None:
    """Python itself, before our first line, is on its own: nothing of ours is in what it says then."""
    running = started("units", "skipscope:resnet8-digits")
    time.sleep(delay)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert "skipscope" not in err or "Traceback" not in err, err
    assert running.returncode in (130, 0, -signal.SIGINT, 1)


SHORTAGES = [
    MemoryError("Unable to allocate 7.28 TiB for an array with shape (10**12,)"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1.00 GiB"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
    ),
]


@pytest.mark.parametrize("shortage", SHORTAGES, ids=lambda error: type(error).__name__)
def test_a_lack_of_memory_in_the_middle_leaves_a_run_that_can_go_on(
    shortage: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise shortage

    words = (*TRAIN, "--epochs", "1")
    with monkeypatch.context() as patch:
        patch.setattr("skipscope.training.networks.train", fails)
        assert run_command(patch, *words) == 71
    err = capsys.readouterr().err
    assert "Traceback" not in err
    message = err.splitlines()[-1]
    assert message.startswith("error: out of memory: ")
    assert "allocate" in message
    assert "this process had up to" in message
    assert "GiB are free on this machine" in message
    assert "go on with --resume --out run with more memory" in message
    assert record(tmp_path / "run")["status"] == "out of memory"
    assert "allocate" in record(tmp_path / "run")["error"]
    assert run_command(monkeypatch, *words, "--resume") == 0
    assert record(tmp_path / "run")["status"] == "finished"
    assert "error" not in record(tmp_path / "run")


def test_what_is_no_lack_of_memory() -> None:
    assert not out_of_memory(RuntimeError("shapes do not fit"))
    assert not out_of_memory(ValueError("can't allocate memory"))
    assert "take fewer samples" in str(lack_of_memory(MemoryError()))


def test_the_program_has_one_entry() -> None:
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"skipscope": "skipscope.__main__:start"}
    assert callable(main)
