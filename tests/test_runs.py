"""Run folders and claims."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray
from safetensors.torch import load_file
from torch import nn

from skipscope.errors import InputError
from skipscope.runs import Claim, RunFolder, as_json


def record(path: Path) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text())


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def test_a_run_says_what_it_was_and_holds_its_files(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run"
    model = nn.Linear(2, 3)
    dataset = xarray.Dataset({"a": ("unit", numpy.arange(3.0))}, {"unit": ["x", "y", "z"]}, {"measure": "test"})
    with RunFolder(path, "a test", parameters={"sizes": (1, 2)}, preset="smoke", seed=5) as run:
        assert record(path)["status"] == "running"
        run.write_dataset("numbers", dataset)
        run.write_checkpoint("net", model)
        run.write_json("more.json", {"infinite": float("inf"), "array": numpy.array([1, 2]), "path": path})
        run.write_text("figures/a.txt", "é")
    found = record(path)
    assert {key: found[key] for key in ("what", "preset", "seed", "device", "status")} == {
        "what": "a test",
        "preset": "smoke",
        "seed": 5,
        "device": "cpu",
        "status": "finished",
    }
    assert found["parameters"] == {"sizes": [1, 2]}
    assert {"skipscope", "torch", "python"} <= set(found["versions"])
    assert found["start"] <= found["end"]
    assert set(found["hashes"]) | {"run.json"} == files(path)
    assert found["hashes"]["more.json"] == hashlib.sha256((path / "more.json").read_bytes()).hexdigest()
    assert json.loads((path / "more.json").read_text())["infinite"] is None
    assert torch.equal(load_file(path / "checkpoints/net.safetensors")["weight"], model.weight)
    with xarray.open_dataset(path / "data/numbers.nc", engine="h5netcdf") as read:
        xarray.testing.assert_identical(read.load(), dataset)


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "interrupted"), (RuntimeError("no such luck"), "failed")]
)
def test_a_run_that_ends_early_says_so(tmp_path: Path, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), RunFolder(tmp_path, "a test"):
        raise error
    assert record(tmp_path)["status"] == status
    assert record(tmp_path)["end"] is not None
    assert record(tmp_path).get("error") == ("RuntimeError: no such luck" if status == "failed" else None)


def test_a_file_that_cannot_be_finished_leaves_the_former_one(tmp_path: Path) -> None:
    class Broken:
        def to_netcdf(self, path: Path, engine: str) -> None:
            path.write_bytes(b"half of it")
            raise KeyboardInterrupt

    run = RunFolder(tmp_path, "a test")
    run.write_text("data/a.nc", "whole")
    with pytest.raises(KeyboardInterrupt):
        run.write_dataset("a", Broken())  # type: ignore[arg-type]
    assert (tmp_path / "data/a.nc").read_text() == "whole"
    assert files(tmp_path) == {"run.json", "data/a.nc"}


def test_an_ended_run_of_the_same_kind_is_replaced_and_other_files_stay(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.write_text("old.txt", "old")
    (tmp_path / "notes.txt").write_text("mine")
    with RunFolder(tmp_path, "a test") as run:
        run.write_text("new.txt", "new")
    assert files(tmp_path) == {"run.json", "new.txt", "notes.txt"}


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "other", "another test"):
        pass
    with pytest.raises(InputError, match="no former run of a test"):
        RunFolder(tmp_path / "other", "a test")
    RunFolder(tmp_path / "going on", "a test")
    with pytest.raises(InputError, match="still going on"):
        RunFolder(tmp_path / "going on", "a test")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "file", "a test")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        RunFolder(tmp_path / "mine", "a test")
    assert files(tmp_path / "mine") == {"thesis.tex"}


def test_a_record_cannot_name_files_outside_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    with RunFolder(tmp_path / "run", "a test"):
        pass
    forged = {**record(tmp_path / "run"), "hashes": {"../precious": "", str(tmp_path / "precious"): ""}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(forged))
    with RunFolder(tmp_path / "run", "a test"):
        pass
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(("value", "verdict"), [(0.5, "reproduced"), (1.5, "not reproduced"), (None, "inconclusive")])
def test_a_verdict_follows_its_rule(value: float | None, verdict: str) -> None:
    claim = Claim(
        "X1", "a paper", "it is small", "the value", "below 1", lambda m: None if m["v"] is None else m["v"] < 1
    )
    decision = claim.decide({"v": value}, "smoke")
    assert decision.verdict == verdict
    assert list(decision.to_dict()) == [
        "id",
        "paper",
        "claim",
        "statistic",
        "expected",
        "measured",
        "verdict",
        "preset",
    ]


def test_json_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(TypeError, match="set"):
        as_json({"a": {1, 2}})
