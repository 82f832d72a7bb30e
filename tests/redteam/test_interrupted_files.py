"""Every file operation of a small run, stopped by a kill, a full disk or a broken one; then the run goes on."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skipscope.errors import InputError
from skipscope.runs.verifying import verify_run
from skipscope.runs.whole_files import HALF_WRITTEN
from tests.redteam.faults import FAULTS, KILLED, Fault, Faults, in_a_process_of_its_own, same, small_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def operations(folder: Path, training: bool) -> tuple[list[str], dict[str, Any]]:
    with Faults(folder) as watched:
        found = small_run(folder, training)
    return watched.operations, found


def stopped(folder: Path, fault: Fault, at: int, training: bool) -> bool:
    """Whether the run was stopped; an error of the disk is a message, and nothing else."""

    def work() -> None:
        with Faults(folder, fault, at):
            small_run(folder, training)

    if fault == "kill":
        code = in_a_process_of_its_own(work)
        assert code == KILLED, f"operation {at}: exit code {code}"
        return True
    try:
        work()
    except InputError as error:
        said = str(error)
    else:
        return False  # it could go on: the cache of networks, or a file that was to be removed
    assert "cannot write" in said, said
    return True


def check_all(folder: Path, fault: Fault, training: bool, every: int = 1) -> int:
    """How many runs were stopped and ended as the unbroken one did."""
    counted, expected = operations(folder / "whole", training)
    resumed = 0
    for at in range(0, len(counted), every):
        place = folder / f"{fault}-{at}"
        if stopped(place, fault, at, training) and (place / "run" / "run.json").exists():
            # What is in the record is whole: no half of a file is taken for one.
            assert verify_run(place / "run").bad == (), f"{fault} at {at} ({counted[at]})"
        found = small_run(place, training)
        assert same(found, expected), f"{fault} at {at} ({counted[at]})"
        left = [file.name for file in (place / "run").rglob("*") if HALF_WRITTEN.fullmatch(file.name)]
        left += [file.name for file in (place / "run").rglob("*.training.safetensors")]
        assert left == [], f"{fault} at {at} ({counted[at]})"
        assert verify_run(place / "run").bad == ()
        shutil.rmtree(place)
        resumed += 1
    return resumed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_without_training_survives_faults(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every fifth operation, of which six are one file: all of them, and with a training, in the slow set."""
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path))
    assert check_all(tmp_path, fault, training=False, every=5) > 8


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_with_training_survives_every_fault(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path))
    count = check_all(tmp_path, fault, training=True)
    with capsys.disabled():
        print(f"{fault}: {count} operations, all resumed to the same results")


def in_a_small_place(place: Path, largest: int) -> subprocess.CompletedProcess[str]:
    """A process of its own: what it could do wrong is a segmentation fault."""

    def limit() -> None:
        if largest:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    code = (
        "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from pathlib import Path;"
        "from tests.redteam.faults import small_run; small_run(Path(sys.argv[1]), training=False)"
    )
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, cwd=root, preexec_fn=limit
    )


@pytest.mark.parametrize("largest", [500, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_file_that_may_not_grow_is_a_message(largest: int, tmp_path: Path) -> None:
    ended = in_a_small_place(tmp_path, largest)
    assert ended.returncode == 1, ended
    assert "InputError: cannot write" in ended.stderr.splitlines()[-1]
    assert "make room there" in ended.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 20, 24, 28, 32, 36, 40, 48])
def test_a_full_disk_is_a_message(size: int, tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        ended = in_a_small_place(tmp_path, 0)
        assert ended.returncode in (0, 1), ended
        if ended.returncode:
            assert "No space left on device" in ended.stderr.splitlines()[-1]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
