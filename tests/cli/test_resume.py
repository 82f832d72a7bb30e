"""`skipscope inspect --resume` and `--force`: what was measured is not measured again, or replaced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope import measure
from skipscope.inspection import inspecting
from skipscope.runs import RunFolder, load_run
from tests.commands import run_command

Capture = pytest.CaptureFixture[str]
NET = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return x + torch.relu(self.linear(x))

def net():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), Block()), torch.randn(4, 6)
"""


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("net.py").write_text(NET)
        patch.setattr(import_module("skipscope.report"), "write_report", lambda path: path / "report.html")
        assert inspected(patch) == 0
    return folder / "run"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    monkeypatch.setattr(import_module("skipscope.report"), "write_report", lambda path: path / "report.html")


@pytest.fixture(name="finished")
def _finished(whole: Path, tmp_path: Path) -> None:
    """run, a copy of it."""
    shutil.copytree(whole, tmp_path / "run")


def inspected(monkeypatch: pytest.MonkeyPatch, *options: object) -> int:
    return run_command(monkeypatch, "inspect", "net.py:net", "--budget", "20s", "--out", "run", *options)


def stop_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int = 1) -> None:
    """Ctrl-C in the middle of a measurement, when it is called for the `call`th time."""
    real, calls = getattr(measure, name), []

    def interrupted(*args: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(measure, name, interrupted)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The measurements that are made from now on."""
    made: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(measure, name)

        def call(*args: Any, **more: Any) -> Any:
            made.append(name)
            return real(*args, **more)

        return call

    for name in ("profile", "verification", "trajectories", "stability", "spectra", "alignment", "law", "conditioning"):
        monkeypatch.setattr(measure, name, counted(name))
    return made


def datasets(folder: Path | str) -> dict[str, xarray.Dataset]:
    run = load_run(folder)
    return {name: run.dataset(name) for name in run.names}


def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_numbers(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, "spectra", call=3)  # units are measured one after another
        assert inspected(monkeypatch) == 130
    assert "go on with --resume --out run" in capsys.readouterr().err
    assert load_run("run").record["status"] == "interrupted"
    assert datasets("run")["spectra"].sizes["unit"] == 2
    with monkeypatch.context() as patch:
        made = counting(patch)
        assert inspected(monkeypatch, "--resume") == 0
    # A unit and the stage; the law is counted first, to see where it proves something.
    assert made == ["spectra", "spectra", "alignment", "law", "law", "law", "law"]
    assert "going on in run, which has profile" in capsys.readouterr().err
    unbroken, resumed = datasets(whole), datasets("run")
    assert set(unbroken) == set(resumed)
    for name, data in unbroken.items():
        for variable in data.data_vars:
            numpy.testing.assert_array_equal(resumed[name][variable].values, data[variable].values)
    record = load_run("run").record
    assert (record["status"], len(record["resumed"]), record["left_out"]) == ("finished", 1, {})
    load_run("run").require_all()


@pytest.mark.usefixtures("finished")
def test_a_finished_run_is_shown_again(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    before = datasets("run")
    made = counting(monkeypatch)
    assert inspected(monkeypatch, "--resume", "--json") == 0
    again = capsys.readouterr()
    assert made == []
    assert set(json.loads(again.out)["measured"]) == set(before)
    assert json.loads(again.out)["run"]["schema"] == 1
    assert "nothing is measured again" in again.err


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", 1), "seed was 0 and is now 1"),
        (("--budget", "30s"), "budget was 20.0 and is now 30.0"),
        (("--samples", 2), "is now"),
    ],
)
def test_other_options_are_refused(
    options: tuple[object, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert inspected(monkeypatch, "--resume", *options) == 2
    err = capsys.readouterr().err
    assert "run cannot be resumed" in err
    assert message in err


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize(("old", "new", "what"), [
    ("manual_seed(0)\n    return", "manual_seed(1)\n    return", "the model's values"),
    ("torch.randn(4, 6)", "torch.ones(4, 6)", "the input's values"),
])  # fmt: skip
def test_another_model_or_input_under_the_same_name_is_refused(
    old: str, new: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert old in NET
    Path("net.py").write_text(NET.replace(old, new))
    assert inspected(monkeypatch, "--resume") == 2
    assert f"run cannot be resumed: {what} is not what it was" in capsys.readouterr().err


@pytest.mark.usefixtures("finished")
def test_force_replaces_a_run_and_keeps_what_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("run/mine.txt").write_text("mine")
    made = counting(monkeypatch)
    assert inspected(monkeypatch, "--force", "--seed", 1) == 0
    assert "profile" in made
    assert load_run("run").record["seed"] == 1
    assert Path("run/mine.txt").read_text() == "mine"


def test_a_folder_of_something_else_is_not_touched(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with RunFolder(Path("run"), "study D.law"):
        pass
    before = Path("run/run.json").read_bytes()
    for option in ("--resume", "--force"):
        assert inspected(monkeypatch, option) == 2
        assert "holds a run of study D.law, not of inspect" in capsys.readouterr().err
    assert Path("run/run.json").read_bytes() == before


@pytest.mark.slow
def test_spectra_are_kept_while_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill, which leaves no time to write, costs the work of seconds."""
    monkeypatch.setattr(inspecting, "UNKEPT", 0.0)
    kept: list[int] = []
    real = RunFolder.write_dataset

    def write(run: RunFolder, name: str, data: xarray.Dataset) -> Path:
        if name == "spectra":
            kept.append(data.sizes["unit"])
        return real(run, name, data)

    monkeypatch.setattr(RunFolder, "write_dataset", write)
    assert inspected(monkeypatch, "--resume") == 0  # there is nothing yet
    assert kept[:4] == [1, 2, 3, 4]
