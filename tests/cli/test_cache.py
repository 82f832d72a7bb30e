"""`skipscope cache`: lists what is kept, and removes what skipscope has put there and nothing else."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
import torch
import typer

from skipscope.cli.talk import talk
from skipscope.data.download import write_manifest
from skipscope.sealed import tensor_file
from tests.commands import run_command

Capture = pytest.CaptureFixture[str]
DAY = 86400


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "data"))


@pytest.fixture
def filled(tmp_path: Path) -> dict[str, Path]:
    """By what they are: a new network, an old one, a damaged one, data sets, and things that a kill left."""
    networks, data = tmp_path / "cache" / "networks", tmp_path / "data"
    networks.mkdir(parents=True)
    about = {"network": "resnet8-digits, seed 3", "data": "digits", "test_accuracy": 0.981}
    content = tensor_file({"weight": torch.zeros(2000)}, {"skipscope": json.dumps(about)})
    there = {
        "new": networks / f"{'a' * 64}.safetensors",
        "old": networks / f"{'b' * 64}.safetensors",
        "damaged": networks / f"{'c' * 64}.safetensors",
        "half": networks / f".123.{'d' * 64}.safetensors",
        "mine": networks / "mine.safetensors",
        "download": data / ".download-x",
        "fetched": data / "MNIST",
        "brought": data / "cifar-10-batches-py",
        "other": data / "my-images",
    }
    for name in ("new", "old"):
        there[name].write_bytes(content)
    for name in ("damaged", "half", "mine"):
        there[name].write_bytes(b"x" * 100)
    for name in ("download", "fetched", "brought", "other"):
        there[name].mkdir(parents=True)
        (there[name] / "file").write_bytes(b"x" * 50_000)
    write_manifest(there["fetched"])
    past = time.time() - 40 * DAY
    os.utime(there["old"], (past, past))
    return there


def test_the_list_says_what_is_kept_with_size_and_age(
    filled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert run_command(monkeypatch, "cache", "list") == 0
    out = capsys.readouterr().out
    for words in ("resnet8-digits, seed 3 on digits, 98.1 %", "40 days", "mnist", "unreadable", "7 entries", "KiB"):
        assert words in out
    assert "not downloaded by skipscope" in out
    for name in ("mine", "my-images"):
        assert name not in out


def test_the_list_as_a_document(filled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "cache", "list", "--json", "-q") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert found["bytes"] == sum(one["bytes"] for one in found["kept"])
    assert [one["bytes"] for one in found["kept"]] == sorted((one["bytes"] for one in found["kept"]), reverse=True)
    kept = {Path(one["path"]): one for one in found["kept"]}
    assert (kept[filled["fetched"]]["removable"], kept[filled["brought"]]["removable"]) == (True, False)


def test_an_empty_cache(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "cache", "list") == 0
    assert "nothing is kept" in capsys.readouterr().out
    assert run_command(monkeypatch, "cache", "clean", "--all") == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_a_dry_run_removes_nothing(filled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "cache", "clean", "--all", "--dry-run") == 0
    assert "6 entries" in capsys.readouterr().out
    assert all(path.exists() for path in filled.values())


def test_all_that_is_ours_is_removed_and_nothing_else(
    filled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert run_command(monkeypatch, "cache", "clean", "--all", "--yes") == 0
    assert "removed 6 entries" in capsys.readouterr().out
    assert {name for name, path in filled.items() if path.exists()} == {"mine", "brought", "other"}


def test_by_age(filled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run_command(monkeypatch, "cache", "clean", "--older-than", "30d", "--yes", "--json") == 0
    (gone,) = json.loads(capsys.readouterr().out)["removed"]
    assert Path(gone["path"]) == filled["old"]
    assert {name for name, path in filled.items() if not path.exists()} == {"old"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--all",), "nobody can be asked here; say --yes"),
        (("--all", "--json"), "say --yes"),
        ((), "expected --older-than AGE or --all, got none"),
        (("--all", "--older-than", "3d"), "got both"),
        (("--older-than", "soon"), "such as 12h, 30d or 8w"),
    ],
)
def test_what_is_refused(
    options: tuple[str, ...],
    message: str,
    filled: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    assert run_command(monkeypatch, "cache", "clean", *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert all(path.exists() for path in filled.values())


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_asks(
    answer: bool, filled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.modules["skipscope.cli.cache"], "_can_ask", lambda: True)

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        assert talk._display is None, "bars would be drawn over the question"
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    assert run_command(monkeypatch, "cache", "clean", "--all") == 0
    assert asked[0].startswith("remove 6 entries")
    assert filled["new"].exists() is not answer
    captured = capsys.readouterr()
    assert ("nothing was removed" in captured.out) is not answer
    assert "resnet8-digits" in captured.err


def test_what_cannot_be_removed_is_told(
    filled: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert run_command(monkeypatch, "cache", "clean", "--older-than", "30d", "--yes") == 2
    assert "1 file could not be removed" in capsys.readouterr().err
