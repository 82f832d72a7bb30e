"""`skipscope units`: without values where nothing is to be computed, with a real pass where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from skipscope.models import resolve
from skipscope.trace import trace
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

class Looks(Block):
    def forward(self, x):
        return super().forward(x) if x.abs().sum().item() >= 0 else x

def net():
    return nn.Sequential(Block(), Block()), torch.randn(4, 6)

def looks():
    return nn.Sequential(Looks(), Block()), torch.randn(4, 6)

def wrong():
    return nn.Sequential(Block(), Block()), torch.randn(4, 5)

def other_precision():
    return nn.Sequential(Block(), Block()), torch.randn(4, 6, dtype=torch.float64)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)


def document(monkeypatch: pytest.MonkeyPatch, capsys: Capture, *arguments: object) -> Any:
    assert run_command(monkeypatch, "units", *arguments, "--json", "-q") == 0
    return json.loads(capsys.readouterr().out)


def test_nothing_is_allocated_for_large_images(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    spec, shape = "skipscope:resnet8-cifar", (3, 4096, 4096)
    source = resolve(spec, input_shape=shape, values=False)
    assert isinstance(source.batch, Tensor)
    assert tuple(source.batch.shape) == (2, *shape)
    assert all(tensor.is_meta for tensor in (source.batch, *source.model.parameters(), *source.model.buffers()))
    found = document(monkeypatch, capsys, spec, "--input-shape", "3,4096,4096")
    assert [unit["entry_shape"][1:] for unit in found["units"]] == [[4096, 4096]] * 2 + [[2048, 2048]]
    assert found["replay_error"] is None


def test_images_that_no_machine_could_hold_have_units_too(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "units", "torchvision:resnet18", "--input-shape", "3,1000000,1000000") == 0
    assert "256x62500x62500" in capsys.readouterr().out


def test_the_table_says_that_the_replay_was_not_checked(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "units", "net.py:net") == 0
    out = capsys.readouterr().out
    assert "2 residual units in 1 stage; replay not checked" in out
    assert "--replay runs it" in out.splitlines()[-1]
    assert run_command(monkeypatch, "units", "net.py:net", "--replay") == 0
    out = capsys.readouterr().out
    assert "replaying them gives its output to" in out
    assert "--replay" not in out


def test_named_units_run_the_model(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found = document(monkeypatch, capsys, "net.py:net", "--units", "0,1")
    assert found["replay_error"] is not None


def test_a_model_that_looks_at_values_is_run(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found = document(monkeypatch, capsys, "net.py:looks")
    assert [unit["name"] for unit in found["units"]][-1] == "1"
    assert found["replay_error"] is not None


@pytest.mark.parametrize(("name", "message"), [("wrong", "4x5 and 6x6"), ("other_precision", "its example is float64")])
def test_what_is_wrong_is_told_as_by_a_real_pass(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    said = []
    for options in ((), ("--replay",)):
        assert run_command(monkeypatch, "units", f"net.py:{name}", *options) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert message in said[0]


@pytest.mark.parametrize("spec", ["skipscope:resnet8-digits", "skipscope:type2-mnist", "net.py:net"])
def test_the_units_are_those_of_a_real_pass(spec: str) -> None:
    found = []
    for values in (False, True):
        source = resolve(spec, values=values)
        found.append(trace(source.model, source.batch).to_dict())
    for key in ("units", "stages", "segments", "left_out"):
        assert found[0][key] == found[1][key]


def test_weights_from_a_file_are_still_looked_at(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    torch.save({"nothing": torch.zeros(1)}, "other.pt")
    assert run_command(monkeypatch, "units", "skipscope:resnet8-digits", "--weights", "other.pt") == 2
    assert "other.pt" in capsys.readouterr().err
