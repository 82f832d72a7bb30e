"""Commands whose work is split into tasks: their options, many checkpoints, and a sweep that is ended by SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import skipscope as ss
from skipscope.runs import load_run
from tests.commands import run_command

ROOT = Path(__file__).parents[2]
MODEL = "skipscope:resnet8-digits-n4"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "resnet8-digits", "--executor", "processes"), "is for several networks; give --seeds A-B too"),
        (("inspect", MODEL, "--executor", "processes"), "is for many checkpoints; give --checkpoints FILE,... too"),
        (("inspect", MODEL, "--checkpoints", "a.pt"), "name it with --out DIR"),
        (("inspect", MODEL, "--checkpoints", "a.pt", "--out", "x"), "no weights file a.pt"),
        (("study", "run", "C.theorems", "--executor", "rey"), "--executor rey"),
        (("study", "run", "C.theorems", "--workers", "3"), "choose --executor processes, ray or slurm too"),
        (("sweep", MODEL, "--executor", "processes", "--address", "a:1"), "choose --executor ray too"),
        (("sweep", MODEL, "--measure", "nothing"), "'nothing' is no measure of a sweep"),
        (("sweep", MODEL, MODEL), f"{MODEL} is named twice; name every model once\n"),
        (
            ("sweep", MODEL, "--executor", "processes", "--slurm", "partition=gpu"),
            "partition=gpu: that is for Slurm; choose --executor slurm too",
        ),
        (("sweep", MODEL, "--text", "a", "--data", "digits"), "both say what the input is"),
    ],
)
def test_wrong_options_are_one_line(
    words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not Path("runs").exists()


def test_checkpoints_that_would_share_a_folder_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a b.pt", "a:b.pt"):
        Path(name).write_bytes(b"nothing")
    assert run_command(monkeypatch, "inspect", MODEL, "--checkpoints", "a*.pt", "--out", "all") == 2
    assert "a b.pt and a:b.pt would both be written to a-b; rename one of them" in capsys.readouterr().err
    assert not Path("all").exists()


@pytest.mark.slow
def test_many_checkpoints_have_a_run_each_and_a_comparison(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(2):
        torch.manual_seed(seed)
        torch.save(ss.build("resnet8-digits-n4").cpu().state_dict(), f"net-{seed}.pt")
    Path("wrong.pt").write_bytes(b"nothing")
    asked = (
        "inspect",
        MODEL,
        "--checkpoints",
        "net-*.pt,wrong.pt",
        "--data",
        "digits",
        "--budget",
        "1s",
        "--out",
        "all",
    )
    assert run_command(monkeypatch, *asked, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said["checkpoints"]) == ["net-0", "net-1"]
    assert "wrong.pt" in said["failures"]["wrong"]
    assert Path("all/comparison.html").is_file()
    for name in said["checkpoints"]:
        saved = load_run(Path("all") / name)
        assert saved.record["status"] == "finished"
        assert "profile" in saved.names
    assert run_command(monkeypatch, *asked) == 2
    assert "--resume goes on with runs in it" in capsys.readouterr().err
    before = Path("all/net-0/run.json").read_text()
    torch.save(ss.build("resnet8-digits-n4").cpu().state_dict(), "wrong.pt")
    assert run_command(monkeypatch, *asked, "--resume") == 0
    assert "wrong: " in capsys.readouterr().out
    assert json.loads(before)["start"] == json.loads(Path("all/net-0/run.json").read_text())["start"]
    assert run_command(monkeypatch, *asked, "--resume", "--seed", "3") == 2
    assert "holds a run of other weights, inputs or options" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_that_sigterm_ends_stops_its_workers_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [MODEL, *(f"skipscope:resnet{depth}-digits-n16" for depth in (14, 20, 26))]
    words = ["sweep", *models, "--data", "digits", "--measure", "profile,spectra", "--executor", "processes"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(
        [sys.executable, "-m", "skipscope", *words, "--workers", "2", "--out", "run"], env=environment
    )
    deadline = time.monotonic() + 120
    while not list(Path("run/data").glob("*.nc")) and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [int(place.name) for place in Path("/proc").iterdir() if _parent(place) == running.pid]
    assert workers
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 143
    assert not any(_parent(Path(f"/proc/{pid}")) for pid in workers)
    assert load_run("run").record["status"] == "interrupted"
    there = {file: file.stat().st_mtime_ns for file in Path("run/data").glob("model-*.nc")}
    assert run_command(monkeypatch, *words, "--workers", "1", "--out", "run", "--resume") == 0
    assert all(file.stat().st_mtime_ns == time_of for file, time_of in there.items())  # not done again
    assert run_command(monkeypatch, *words[:-2], "--out", "whole") == 0
    assert Path("run/data/sweep.nc").read_bytes() == Path("whole/data/sweep.nc").read_bytes()


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
