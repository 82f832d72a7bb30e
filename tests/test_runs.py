"""Run folders."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray
from safetensors.torch import load_file
from torch import nn

from skipscope.errors import InputError
from skipscope.runs import RunFolder, as_json, load_run
from skipscope.runs.cache import key_of


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
    assert files(tmp_path) == {"run.json", "data/a.nc", ".lock"}


def test_a_former_run_is_replaced_when_asked_and_other_files_stay(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.write_text("old.txt", "old")
    (tmp_path / "notes.txt").write_text("mine")
    with RunFolder(tmp_path, "a test", former="replace") as run:
        run.write_text("new.txt", "new")
    assert files(tmp_path) == {"run.json", "new.txt", "notes.txt"}


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "other", "another test"):
        pass
    for former in ("refuse", "replace", "resume"):
        with pytest.raises(InputError, match="no former run of a test"):
            RunFolder(tmp_path / "other", "a test", former=former)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--resume"):
        RunFolder(tmp_path / "other", "another test")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "file", "a test")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        RunFolder(tmp_path / "mine", "a test", former="replace")
    assert files(tmp_path / "mine") == {"thesis.tex"}


def dataset(value: float) -> xarray.Dataset:
    return xarray.Dataset({"a": ("unit", numpy.array([value]))}, {"unit": ["x"]})


def never() -> xarray.Dataset:
    raise AssertionError("this part was there already")


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    def stop() -> xarray.Dataset:
        raise KeyboardInterrupt

    run = RunFolder(tmp_path, "a test", parameters={"n": 1})
    first = run.part("first", lambda: dataset(1.0))
    with pytest.raises(KeyboardInterrupt), run:
        run.part("second", stop)
    assert record(tmp_path)["status"] == "interrupted"
    started = record(tmp_path)["start"]
    with RunFolder(tmp_path, "a test", parameters={"n": 1}, former="resume") as run:
        xarray.testing.assert_identical(run.part("first", never), first)
        run.part("second", lambda: dataset(2.0))
        run.note("a note")
        run.note("a note")
    found = record(tmp_path)
    assert found["status"] == "finished"
    assert found["start"] == started
    assert len(found["resumed"]) == 1
    assert found["notes"] == ["a note"]
    assert set(found["hashes"]) == {"data/first.nc", "data/second.nc"}


def test_a_part_that_was_changed_is_computed_again(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.part("first", lambda: dataset(1.0))
    (tmp_path / "data/first.nc").write_bytes(b"something else")
    with RunFolder(tmp_path, "a test", former="resume") as run:
        assert run.part("first", lambda: dataset(3.0))["a"].item() == 3.0


def test_a_run_is_not_resumed_with_other_parameters(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test", parameters={"net": {"depth": 8, "width": 2}}, seed=0):
        pass
    with pytest.raises(InputError, match=r"net\.depth was 8 and is now 20; seed was 0 and is now 1"):
        RunFolder(tmp_path, "a test", parameters={"net": {"depth": 20, "width": 2}}, seed=1, former="resume")


def test_one_run_at_a_time_and_a_killed_one_is_no_run(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from skipscope.runs import RunFolder\n"
        f"run = RunFolder(Path({str(tmp_path)!r}), 'a test')\n"
        "(run.path / '.123.half.nc').write_text('half')\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for former in ("refuse", "replace", "resume"):
            with pytest.raises(InputError, match="still going on"):
                RunFolder(tmp_path, "a test", former=former)  # type: ignore[arg-type]
        process.kill()
    assert record(tmp_path)["status"] == "running"
    with RunFolder(tmp_path, "a test", former="resume"):
        pass
    assert record(tmp_path)["status"] == "finished"
    assert files(tmp_path) == {"run.json"}


def test_a_saved_run_is_read_again(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "a test") as run:
        run.part("b", lambda: dataset(1.0))
        run.part("a", lambda: dataset(2.0))
    saved = load_run(tmp_path / "run")
    assert saved.names == ("b", "a")
    assert saved.dataset("a")["a"].item() == 2.0
    assert saved.claims == ()
    with pytest.raises(InputError, match="it has b, a"):
        saved.dataset("c")
    with pytest.raises(InputError, match=r"no run\.json"):
        load_run(tmp_path)
    (tmp_path / "run" / "claims.json").write_text('[{"id": "D1"}]')
    with pytest.raises(InputError, match="not a list of claims"):
        load_run(tmp_path / "run")


def test_the_key_of_a_thing_is_that_of_its_content() -> None:
    assert key_of({"a": 1, "b": (1, 2)}) == key_of({"b": [1, 2], "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})


def test_a_record_cannot_name_files_outside_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    with RunFolder(tmp_path / "run", "a test"):
        pass
    forged = {**record(tmp_path / "run"), "hashes": {"../precious": "", str(tmp_path / "precious"): ""}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(forged))
    with RunFolder(tmp_path / "run", "a test", former="replace"):
        pass
    assert (tmp_path / "precious").exists()


def test_json_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(TypeError, match="set"):
        as_json({"a": {1, 2}})
