"""The command line as a user meets it: what goes to which stream, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import skipscope
from skipscope.cli import main
from skipscope.cli.options import folder_name

FACTORY = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(x))

def net():
    print("a factory that talks")
    return nn.Sequential(Block(8), Block(8), nn.Linear(8, 2)), torch.randn(2, 8)

class Leaves(Block):
    def forward(self, x):
        raise SystemExit(7)

def leaves():
    return Leaves(8), torch.randn(2, 8)

def picture():
    return nn.Sequential(nn.Flatten(), Block(64))
"""


@pytest.fixture
def factory(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(FACTORY)
    return path


class Command:
    """Runs `skipscope ARGUMENTS` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self.monkeypatch.setattr(sys, "argv", ["skipscope", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = self.capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else 0), captured.out, captured.err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_units_prints_a_table_under_a_line_about_the_model(command: Command) -> None:
    code, out, _ = command("units", "torchvision:resnet18", "--input-shape", "3,32,32")
    assert code == 0
    assert out.splitlines()[0] == "torchvision resnet18, structure only, without values"
    assert "layer4.1" in out


def test_json_is_one_document_and_nothing_else(command: Command, factory: Path) -> None:
    code, out, err = command("units", f"{factory}:net", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == 1
    assert [unit["name"] for unit in document["units"]] == ["0", "1"]
    assert {"name", "skip", "tail", "stage", "entry_shape", "exit_shape", "parameters"} <= set(document["units"][0])
    assert document["source"]["model"] == f"{factory}:net"
    assert document["source"]["random_weights"] is False
    assert document["source"]["seed"] == 0
    assert "a factory that talks" in err


def test_out_writes_the_same_document_and_leaves_nothing_beside_it(
    command: Command, factory: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder"
    code, out, err = command("units", f"{factory}:net", "--json", "--out", folder)
    assert code == 0
    assert (folder / "units.json").read_text() == out
    assert [path.name for path in folder.iterdir()] == ["units.json"]
    assert "units.json" in err


NORMED = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return x + torch.relu(self.norm(self.linear(x)))

def net():
    return nn.Sequential(Block(), Block()), torch.randn(8, 4)
"""


@pytest.mark.slow
def test_inspect_says_in_its_first_line_that_batch_norms_have_never_seen_data(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("normed.py").write_text(NORMED)
    code, out, _ = command("inspect", "normed.py:net", "--budget", "1s", "--out", "plain")
    assert code == 0
    assert "2 of 2 batch norms have never seen data" in out.splitlines()[0]
    assert "2 of 2 batch norms have never seen data" in Path("plain/report.html").read_text()
    code, out, _ = command("inspect", "normed.py:net", "--budget", "1s", "--out", "calibrated", "--calibrate", "--json")
    assert code == 0
    document = json.loads(out)
    assert list(document)[:2] == ["schema", "notes"]
    (note,) = document["notes"]
    assert "have the statistics of the traced batch (8 samples)" in note


def test_data_gives_the_batch(command: Command, factory: Path) -> None:
    code, out, _ = command("units", f"{factory}:picture", "--data", "digits", "--json")
    assert code == 0
    assert json.loads(out)["units"][0]["entry_shape"] == [64]


WRONG: dict[str, tuple[list[str], str]] = {
    "prefix": (["keras:resnet18"], "unknown prefix"),
    "name": (["torchvision:resnet81"], "did you mean resnet18"),
    "file": (["nowhere.py:net"], "no file nowhere.py"),
    "weights": (["torchvision:resnet18", "--weights", "nowhere.pt"], "no weights file nowhere.pt"),
    "shape": (["torchvision:resnet18", "--input-shape", "3,x"], "such as 3,224,224"),
    "negative shape": (["torchvision:resnet18", "--input-shape", "3,0,4"], "positive whole numbers"),
    "channels": (["torchvision:resnet18", "--input-shape", "5,32,32"], "channels"),
    "data": (["torchvision:resnet18", "--data", "mnits"], "mnist"),
    "two inputs": (["torchvision:resnet18", "--data", "digits", "--input-shape", "3,8,8"], "give one of them"),
    "text": (["torchvision:resnet18", "--text", "hello"], "language model"),
    "device": (["torchvision:resnet18", "--device", "nowhere"], "use cpu"),
    "device without values": (["torchvision:resnet18", "--device", "meta"], "it holds no values"),
    "dtype": (["torchvision:resnet18", "--dtype", "int8"], "use float32"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_line_and_exit_code_two(command: Command, what: str) -> None:
    arguments, message = WRONG[what]
    code, out, err = command("units", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


WRONG_TRAINING: dict[str, tuple[list[str], str]] = {
    "path": (["../../x"], "no family"),
    "name": (["resnet9-digits"], "such as 8 or 14"),
    "depth": ([f"resnet{'9' * 5000}-digits"], "at most 20000"),
    "width": (["resnet8-digits-w1000000"], "at most 10000"),
    "room": (["resnet8-digits-w5000"], "GiB for its weights"),
    "device": (["resnet8-digits", "--device", "bogus"], "--device bogus cannot be used here"),
    "device that is not there": (["resnet8-digits", "--device", "cuda:99"], "--device cuda:99 cannot be used here"),
    "device without values": (["resnet8-digits", "--device", "meta"], "it holds no values"),
    "data": (["resnet8-digits", "--data", "mnits"], "mnist"),
    "channels": (["resnet8-cifar"], "take resnet8-digits"),
    "batch": (["resnet8-digits", "--batch", "100000"], "take fewer"),
    "schedule": (["resnet8-digits", "--schedule", "linear"], "expected one of cosine, step, constant, got 'linear'"),
    "milestones": (["resnet8-digits", "--milestones", "a,b"], "such as 80,120"),
}


@pytest.mark.parametrize("what", WRONG_TRAINING)
def test_a_training_that_cannot_begin_leaves_no_folder(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    arguments, message = WRONG_TRAINING[what]
    code, out, err = command("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b"]


def test_a_training_counts_gradients_and_momentum(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipscope.models import memory, names

    size = memory.size_of(names.build("resnet8-digits"))
    monkeypatch.setattr(memory, "known_free_bytes", lambda device: 2 * size)
    code, _, err = command("train", "resnet8-digits")
    assert code == 2
    assert "for its weights, gradients and momentum, and cpu has" in err


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("skipscope:resnet8-digits", "skipscope-resnet8-digits"),
        ("../../my nets/net.py:f", "my-nets-net.py-f"),
        ("..", "model"),
        ("x" * 300, "x" * 100),
    ],
)
def test_a_model_as_the_name_of_a_folder(text: str, name: str) -> None:
    assert folder_name(text) == name


@pytest.mark.parametrize("name", ["units", "check", "inspect"])
def test_a_model_that_ends_the_program_is_bad_input(command: Command, factory: Path, name: str) -> None:
    code, out, err = command(name, f"{factory}:leaves")
    assert (code, out) == (2, "")
    assert "sys.exit(7)" in err
    assert err.count("\n") == 1


def test_a_factory_without_example_says_how_to_give_one(command: Command, factory: Path) -> None:
    code, _, err = command("units", f"{factory}:picture")
    assert code == 2
    assert "--input-shape C,H,W" in err


def test_a_folder_that_cannot_be_written_is_bad_input(command: Command, factory: Path) -> None:
    code, _, err = command("units", f"{factory}:net", "--out", factory / "below")
    assert code == 2
    assert "cannot write" in err
    assert "choose another" in err


def test_a_usage_error_leaves_with_two(command: Command) -> None:
    code, out, err = command("units")
    assert (code, out) == (2, "")
    assert "MODEL" in err


def test_the_version(command: Command) -> None:
    assert command("--version")[:2] == (0, f"skipscope {skipscope.__version__}\n")


def test_the_installed_command_answers() -> None:
    command = Path(sys.executable).with_name("skipscope")
    if not command.exists():
        pytest.skip("the package is not installed here")
    run = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "units" in run.stdout


@pytest.mark.slow
def test_a_model_that_cannot_be_exported_is_recorded_or_its_units_are_named(command: Command, tmp_path: Path) -> None:
    (tmp_path / "adaptive.py").write_text(
        """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))

class Adaptive(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x):
        x = self.second(self.first(x))
        return -x if x.sum() > 1e6 else x

def make():
    return Adaptive(), torch.randn(2, 4)
"""
    )
    model = f"{tmp_path / 'adaptive.py'}:make"
    code, out, _ = command("units", model)
    assert code == 0
    assert "so its graph was recorded from one pass: it holds only for batches of 2" in out
    code, out, _ = command("units", model, "--units", "first, second", "--json")
    assert code == 0
    assert [unit["name"] for unit in json.loads(out)["units"]] == ["first", "second"]
    code, out, _ = command(
        "inspect", model, "--units", "first,second", "--budget", "5s", "--out", str(tmp_path / "run")
    )
    assert code == 0
    assert "first" in out
    code, _, err = command("units", model, "--units", "frist")
    assert code == 2
    assert "frist" in err
