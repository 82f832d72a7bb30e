"""`skipscope runs verify` and what it says of every file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skipscope.runs import RunFolder
from skipscope.runs.record import write_record
from skipscope.runs.verifying import verify_run
from skipscope.sealed import tensor_file
from tests.commands import run_command
from tests.redteam.faults import measured


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    with RunFolder(tmp_path / "run", "a test") as run:
        run.write_dataset("first", measured(1.0))
        run.write_claims(())
        run.write("checkpoints/net.safetensors", tensor_file({}))
        run.write_json("more.json", {"a": 1})
    return tmp_path / "run"


def states(run: Path) -> dict[str, str]:
    return {file.name: file.state for file in verify_run(run).files}


def test_a_whole_run_is_as_written(run: Path) -> None:
    assert set(states(run).values()) == {"as written"}
    assert len(states(run)) == 5


def test_what_is_wrong_with_each_file(run: Path) -> None:
    (run / "data/first.nc").write_bytes((run / "data/first.nc").read_bytes() + b"x")
    (run / "claims.json").unlink()
    (run / "mine.txt").write_text("")
    (run / ".123.half").write_text("")
    (run / "checkpoints/a.training.safetensors").write_bytes(tensor_file({}))
    (run / "checkpoints/b.training.safetensors").write_bytes(b"cut short")
    found = states(run)
    assert found.pop("data/first.nc") == "changed"
    assert found.pop("claims.json") == "missing"
    assert found.pop("mine.txt") == found.pop(".123.half") == "not of the run"
    assert found.pop("checkpoints/b.training.safetensors") == "unreadable"
    assert set(found.values()) == {"as written"}
    assert [file.name for file in verify_run(run).bad] == [
        "data/first.nc",
        "claims.json",
        "checkpoints/b.training.safetensors",
    ]


def test_a_hash_that_fits_does_not_make_a_file_readable(run: Path) -> None:
    with RunFolder.reopened(run) as again:
        for name in ("data/first.nc", "claims.json", "more.json", "checkpoints/net.safetensors"):
            again.write(name, b"no such file")
    found = states(run)
    assert found.pop("run.json") == "as written"
    assert set(found.values()) == {"unreadable"}


def test_records_that_are_changed_hostile_or_gone(run: Path, tmp_path: Path) -> None:
    record: dict[str, Any] = json.loads((run / "run.json").read_text())
    names = ["../../etc/passwd", "a\0b", "n" * 300, "/etc/passwd", "\ud800"]
    write_record(run, {**record, "hashes": dict.fromkeys(names, "0" * 64)})
    assert {states(run)[name] for name in names} == {"unreadable"}
    (run / "run.json").write_text(json.dumps({**record, "notes": ["new"]}))
    assert states(run)["run.json"] == "changed"
    (run / "run.json").write_text("{")
    assert states(run) == {"run.json": "unreadable"}


def test_the_command(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "runs", "verify", run) == 0
    assert "5 files, none of them damaged" in capsys.readouterr().out
    (run / "more.json").write_text("{}")
    assert run_command(monkeypatch, "runs", "verify", run, "--json") == 2
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert not document["good"]
    assert [one["file"] for one in document["runs"][0]["files"] if one["state"] == "changed"] == ["more.json"]
    assert captured.err.startswith("error: not as the run wrote it: ")
    assert "put back a copy" in captured.err
    assert run_command(monkeypatch, "runs", "verify", tmp_path) == 2
    assert "is no run folder" in capsys.readouterr().err


def test_names_out_of_a_record_do_not_reach_the_terminal(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((run / "run.json").read_text())
    write_record(run, {**record, "what": "a \x1b[2J test", "hashes": {"\x1b[31m.nc": "", "\u202e.nc": "x"}})
    assert run_command(monkeypatch, "runs", "verify", run) == 2
    assert run_command(monkeypatch, "report", run, "--out", run.parent / "page.html") == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\u202e" not in captured.out + captured.err
    assert "\\x1b[2J" in captured.out
