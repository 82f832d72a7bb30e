"""Thousands of odd command lines, settings and files through the entry point, in one process.

Each ends with a code of the documentation's table, with no traceback, and with nothing on the terminal that it would
obey. Runs that are looked at stay as they are.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skipscope.cli import main
from skipscope.cli.talk import BAD_INPUT, CLAIM_FAILED, DONE
from skipscope.data import digits
from skipscope.runs import RunFolder
from skipscope.runs.decisions import Decision
from skipscope.training import Settings
from skipscope.training.networks import Network, trained
from tests.redteam import fuzz
from tests.redteam.faults import measured

EXPECTED = (DONE, CLAIM_FAILED, BAD_INPUT)
OBEYED = [chr(code) for code in (*range(9), *range(0x0B, 0x20), 0x7F, 0x9B, 0x202E)]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / fuzz.OCCUPIED).mkdir()
    (tmp_path / fuzz.OCCUPIED / "thesis.tex").write_text("")


class Tried:
    """Counts of exit codes; the first mistakes in words."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.codes, self.mistakes = capsys, Counter[int](), list[str]()

    def __call__(self, words: list[str], about: str = "") -> int:
        sys.argv = ["skipscope", *words]
        code, raised = -1, ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else -1
        except BaseException as error:  # what main() lets through
            raised = repr(error)
        captured = self.capsys.readouterr()
        self.codes[code] += 1
        shown = captured.out + captured.err
        asked = {"-v", "--verbose"} & {*words}  # for tracebacks
        wrong = [
            *([f"exit code {code} {raised}"] if code not in EXPECTED else []),
            *(["a traceback"] if "Traceback (most recent" in shown and not asked else []),
            *(["a control sequence"] if any(mark in shown for mark in OBEYED) else []),
        ]
        if wrong:
            last = captured.err.strip().splitlines()[-3:]
            self.mistakes.append(f"{', '.join(wrong)}: {words!r:.300} {about} {last}")
        return code


def ended_well(tried: Tried, count: int) -> None:
    assert tried.mistakes == [], "\n".join(tried.mistakes[:20])
    assert sum(tried.codes.values()) == count
    with tried.capsys.disabled():
        print(f"{count} tried: {dict(tried.codes)}")


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (fuzz.command_lines, 100),
        (fuzz.settings, 30),
        pytest.param(fuzz.command_lines, 5000, marks=pytest.mark.slow),
        pytest.param(fuzz.settings, 1500, marks=pytest.mark.slow),
    ],
)
def test_odd_command_lines_and_settings(
    made: Callable[[random.Random], Iterator[list[str]]],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    tried = Tried(capsys)
    for words in itertools.islice(made(random.Random(count)), count):
        tried(words)
    ended_well(tried, count)


CLAIM = Decision(
    "D3", "a paper", "a claim", "a statistic", "expected", {"a": 1.0}, "reproduced", "smoke", study="D.law"
)


@pytest.fixture(name="whole")
def _whole(tmp_path: Path) -> Path:
    """A run folder with one of every kind of file."""
    with RunFolder(tmp_path / "whole", "study D.law", parameters={"D.law": {"images": 3}}, preset="smoke") as run:
        run.write_dataset("first", measured(1.0))
        network = Network("resnet8-digits-n8", digits().subset(samples=64), Settings(epochs=1, batch=32), 0)
        trained(network, run, lambda done, total: None)
        run.note("a note")
        run.write_claims([CLAIM])
        run.write_text("figures/a.html", "a picture")
    return tmp_path / "whole"


READERS: list[Callable[[Path], list[str]]] = [
    lambda run: ["report", str(run), "--out", "page.html"],
    lambda run: ["report", str(run)],
    lambda run: ["runs", "verify", str(run)],
    lambda run: ["runs", "verify", str(run), "--json"],
    lambda run: ["study", "list", str(run)],
    lambda run: ["study", "verdicts", str(run)],
    lambda run: ["study", "run", "D.law", "--preset", "smoke", "--set", "images=nosuch", "--out", str(run), "--resume"],
]


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if not file.is_symlink() and file.is_file()
    }


@pytest.mark.parametrize("count", [20, pytest.param(2500, marks=pytest.mark.slow)])
def test_spoiled_run_folders(
    count: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    tried, chosen = Tried(capsys), random.Random(count)
    for number in range(count):
        folder = fuzz.copied(whole, tmp_path / "spoiled")
        about = fuzz.spoil_run(folder, chosen)
        before = content(folder)
        words = READERS[number % len(READERS)](folder)
        code = tried(words, about)
        if words[:2] == ["runs", "verify"] and about.endswith(" damaged") and content(whole) != before:
            own = about.split()[0]
            if code == DONE and own in ("run.json", "claims.json", "first.nc"):
                tried.mistakes.append(f"not noticed: {about}")
        if words[0] != "report" or "--out" in words:
            assert content(folder) == before, f"{words} changed the folder ({about})"
    ended_well(tried, count)


def spoiled_files(place: Path, chosen: random.Random) -> Iterator[list[str]]:
    """Commands on single files: weights, prompts, data sets."""
    weights = place / "weights.safetensors"
    batches = place / "cifar"
    batches.mkdir(exist_ok=True)
    text = place / "prompts.txt"
    while True:
        kind = chosen.randrange(5)
        if kind == 0:
            weights.write_bytes(fuzz.safetensors_headers(chosen))
            yield ["check", "skipscope:resnet8-digits", "--weights", str(weights)]
        elif kind == 1:
            weights.write_bytes(fuzz.pickles(chosen))
            yield ["check", "skipscope:resnet8-digits", "--weights", str(weights)]
        elif kind == 2:
            for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
                (batches / name).write_bytes(fuzz.pickles(chosen))
            yield ["train", "resnet8-cifar10", "--data", f"cifar10:{batches}", "--out", "never"]
        elif kind == 3:
            idx = place / "mnist"
            idx.mkdir(exist_ok=True)
            for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
                header = bytes([0, 0, 8, 3 if "idx3" in name else 1]) + (2).to_bytes(4, "big") * (
                    3 if "idx3" in name else 1
                )
                (idx / f"{name}-ubyte").write_bytes(fuzz.damaged(header + bytes(8), chosen))
            yield ["train", "resnet8-mnist", "--data", f"mnist:{idx}", "--out", "never", "--batch", "5000"]
        else:
            text.write_bytes(fuzz.damaged(b"one prompt\nanother\n", chosen))
            yield ["inspect", "skipscope:resnet8-digits", "--text-file", str(text)]


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_spoiled_weights_data_and_prompts(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    tried = Tried(capsys)
    for words in itertools.islice(spoiled_files(tmp_path, random.Random(count)), count):
        tried(words)
    ended_well(tried, count)
    assert not os.path.lexists(tmp_path / "never")
