"""`skipscope contract`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import run_command

Capture = pytest.CaptureFixture[str]
NET = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.gate = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return x + 0.5 * self.linear(torch.relu(x))

class Product(Block):
    def forward(self, x):
        return x + self.linear(x) * self.gate(x)

def net():
    return nn.Sequential(Block(), Block()), torch.randn(4, 6)

def product():
    return nn.Sequential(Block(), Product()), torch.randn(4, 6)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)


def test_text_json_and_export(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "contract", "net.py:net", "--strict") == 0
    out = capsys.readouterr().out
    assert "2 residual units; exit = tail(skip + branch) holds for all of them" in out
    assert "0.linear output * 0.5" in out
    assert run_command(monkeypatch, "contract", "net.py:net", "--json", "-q", "--out", "here") == 0
    printed = capsys.readouterr().out
    found = json.loads(printed)
    assert found["units"][1]["branches"][0]["factor"] == 0.5
    assert Path("here/contract.json").read_text() == printed
    assert run_command(monkeypatch, "contract", "net.py:net", "--export", "nnsight", "-q") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["units"][0]["branches"][0]["expression"] == "model[0].linear.output * 0.5"


def test_a_unit_without_a_map(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "contract", "net.py:product") == 0
    assert "no map: no module's output is the branch: 1 computes it in its own code, by mul" in capsys.readouterr().out
    assert run_command(monkeypatch, "contract", "net.py:product", "--strict", "-q") == 1


def test_bad_input(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "contract", "net.py:net", "--export", "captum") == 2
    assert "--export captum: expected one of json, nnsight, transformerlens" in capsys.readouterr().err
