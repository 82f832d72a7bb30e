"""`skipscope train --seeds`: one network for each seed, in one run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open

from skipscope.cli.train import seeds_of
from skipscope.data import digits
from skipscope.errors import InputError
from skipscope.models import build
from skipscope.models.weights import load_weights
from skipscope.training import accuracy
from tests.commands import run_command

NETWORK = "type1-digits-w8-b2"
Command = Callable[..., tuple[int, str, str]]  # arguments: exit code, standard output, standard error


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = run_command(monkeypatch, *arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))


def test_one_network_for_each_seed(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["train", NETWORK, "--epochs", "1", "--out", str(out), "--json"]
    code, text, err = command(*arguments, "--seeds", "1000-1002")
    assert code == 0, err
    found = json.loads(text)
    assert [one["seed"] for one in found["networks"]] == [1000, 1001, 1002]
    assert all(Path(one["weights"]).is_file() and one["status"] == "finished" for one in found["networks"])
    assert len({one["test_accuracy"] for one in found["networks"]} | {1}) > 1
    assert len(list((tmp_path / "cache" / "networks").iterdir())) == 3
    record = json.loads((out / "run.json").read_text())
    assert record["parameters"]["seeds"] == [1000, 1001, 1002]
    code, again, err = command(*arguments, "--seeds", "1000-1002", "--resume")
    assert code == 0, err
    assert [one["history"] for one in json.loads(again)["networks"]] == [one["history"] for one in found["networks"]]
    code, _, err = command(*arguments, "--seeds", "1000-1003", "--resume")
    assert code == 2
    assert "cannot be resumed" in err


def test_a_training_that_diverges_says_when_and_what_to_do(command: Command, tmp_path: Path) -> None:
    arguments = ["train", NETWORK, "--epochs", "1", "--rate", "1e6", "--out"]
    code, text, err = command(*arguments, tmp_path / "one")
    assert code == 0, err
    code, shown, err = command(*arguments, tmp_path / "two", "--json")
    step = json.loads(shown)["history"]["diverged_at"]
    assert f"diverged at step {step}, counted from 0 (try a smaller --rate than 1e+06), " in text


def test_weights_are_exported(command: Command, tmp_path: Path) -> None:
    export = tmp_path / "weights"
    arguments = ["train", NETWORK, "--epochs", "1", "--out", str(tmp_path / "run"), "--export", str(export)]
    code, text, err = command(*arguments, "--seeds", "1000-1001")
    assert code == 0, err
    files = sorted(export.iterdir())
    assert [file.name for file in files] == [f"{NETWORK}-seed{seed}.safetensors" for seed in (1000, 1001)]
    assert all(str(file) in text for file in files)
    with safe_open(files[0], "pt") as file:
        about = json.loads(file.metadata()["skipscope"])
        assert about["network"] == NETWORK
        assert about["seed"] == about["settings"]["seed"] == 1000
        assert set(file.keys()) == set(build(NETWORK).state_dict())
    model = build(NETWORK)
    load_weights(model, files[1])
    assert accuracy(model, digits().test) == pytest.approx(_accuracy_of(files[1]))
    other = ["train", NETWORK, "--epochs", "2", "--out", str(tmp_path / "other"), "--export", str(export)]
    code, _, err = command(*other, "--seeds", "1000-1001")
    assert code == 2
    assert f"{NETWORK}-seed1000.safetensors is there already" in err
    assert not (tmp_path / "other").exists()
    files[0].rename(tmp_path / "file")
    code, _, err = command("train", NETWORK, "--out", str(tmp_path / "other"), "--export", str(tmp_path / "file"))
    assert code == 2
    assert "expected a folder" in err


def _accuracy_of(path: Path) -> float:
    with safe_open(path, "pt") as file:
        return float(json.loads(file.metadata()["skipscope"])["test_accuracy"])


def test_a_list_of_results_without_json(command: Command, tmp_path: Path) -> None:
    code, text, err = command("train", NETWORK, "--epochs", "1", "--seeds", "7,9", "--out", str(tmp_path / "run"))
    assert code == 0, err
    assert f"{NETWORK}, seed 7 on digits: finished" in text
    assert f"{NETWORK}, seed 9 on digits: finished" in text


@pytest.mark.parametrize(
    ("text", "seeds"), [("", []), ("3", [3]), ("1000-1002", [1000, 1001, 1002]), ("1,5-6,0", [1, 5, 6, 0])]
)
def test_seeds_are_ranges_and_single_ones(text: str, seeds: list[int]) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["a", "5-3", "-1", "1-2-3", "1.5", "4,4", "1-3,2", "0-1000", "0-99999999999", "²"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--seeds .*: expected"):
        seeds_of(text)


def test_one_of_seed_and_seeds(command: Command, tmp_path: Path) -> None:
    code, _, err = command("train", NETWORK, "--seed", "1", "--seeds", "2-3", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "expected one of the two" in err
    assert not (tmp_path / "run").exists()


def test_several_processes_do_not_share_a_fleet(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    code, _, err = command("train", NETWORK, "--seeds", "2-3", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "expected one process" in err
    assert not (tmp_path / "run").exists()
