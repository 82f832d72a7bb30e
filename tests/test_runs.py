"""Run folders."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
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
from skipscope.inspection.result import load
from skipscope.report import write_report
from skipscope.runs import RunFolder, as_json, digest, load_run
from skipscope.runs.decisions import Decision
from skipscope.runs.files import key_of
from skipscope.runs.lock import Lock
from skipscope.runs.record import write_record
from skipscope.runs.whole_files import write_whole
from skipscope.sealed import KEY
from tests.commands import run_command
from tests.flips import flipped


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


def test_a_file_that_cannot_be_finished_leaves_the_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(descriptor: int) -> None:
        raise KeyboardInterrupt

    run = RunFolder(tmp_path, "a test")
    run.write_text("data/a.nc", "whole")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_whole(tmp_path / "data/a.nc", b"half of it")
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
            RunFolder(tmp_path / "other", "a test", former=former)
    with pytest.raises(InputError, match="former='resume' goes on with it"):
        RunFolder(tmp_path / "other", "another test")
    with pytest.raises(InputError, match="status 'finished'; choose another folder"):
        RunFolder(tmp_path / "other", "another test", resumable=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "file", "a test")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        RunFolder(tmp_path / "mine", "a test", former="replace")
    assert files(tmp_path / "mine") == {"thesis.tex"}
    assert files(tmp_path / "other") == {"run.json"}
    with pytest.raises(InputError, match="cannot write"):
        RunFolder(tmp_path / "file" / "below", "a test")


def test_a_folder_that_is_refused_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "mine" / "deep" / ".123.diary").write_text("half written by somebody else")
    for there in ({"deep/.123.diary"}, {"deep/.123.diary", ".lock"}):
        with pytest.raises(InputError, match="not empty"):
            RunFolder(tmp_path / "mine", "a test")
        assert files(tmp_path / "mine") == there
        (tmp_path / "mine" / ".lock").write_text("another program's")
    assert (tmp_path / "mine" / ".lock").read_text() == "another program's"

    def fails(self: RunFolder, what: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "_found", fails)
    with pytest.raises(KeyboardInterrupt):
        RunFolder(tmp_path / "new" / "run", "a test")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("former", ["refuse", "resume"])
def test_a_run_that_was_killed_in_its_first_record_is_none(tmp_path: Path, former: Any) -> None:
    (tmp_path / ".4711.run.json").write_text('{"what"')
    (tmp_path / ".lock").write_text("")
    with RunFolder(tmp_path, "a test", former=former):
        pass
    assert files(tmp_path) == {"run.json"}
    assert "resumed" not in record(tmp_path)


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
    assert found["resumed"][0]["versions"] == found["versions"]
    assert found["resumed"][0]["time"] >= started
    assert found["notes"] == ["a note"]
    assert set(found["hashes"]) == {"data/first.nc", "data/second.nc"}


def test_notes_of_a_part_stay_with_it(tmp_path: Path) -> None:
    """A part that is read is not computed, and cannot say them itself."""

    def inner(run: RunFolder) -> xarray.Dataset:
        run.note("a network diverged")
        return dataset(1.0)

    def outer(run: RunFolder) -> xarray.Dataset:
        run.note("few images")
        return run.part("inner", lambda: inner(run))

    with RunFolder(tmp_path, "a test") as run:
        run.note("no longer so")
        run.part("outer", lambda: outer(run))
        run.part("silent", lambda: dataset(2.0))
    for _ in range(2):
        with RunFolder(tmp_path, "a test", former="resume") as run:
            run.part("outer", never)
            run.part("silent", never)
    assert record(tmp_path)["notes"] == ["few images", "a network diverged"]
    assert record(tmp_path)["notes_of"] == {
        "inner": ["a network diverged"],
        "outer": ["few images", "a network diverged"],
    }


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


def rewrite(path: Path, **changes: Any) -> None:
    """As another version of us would have written it."""
    write_record(path, {**record(path), **changes})


@pytest.mark.parametrize("name", ["torch", "skipscope"])
def test_parts_of_different_versions_are_not_mixed(tmp_path: Path, name: str) -> None:
    with RunFolder(tmp_path, "a test"):
        pass
    rewrite(tmp_path, versions={**record(tmp_path)["versions"], name: "0.0.1"})
    before = (tmp_path / "run.json").read_text()
    with pytest.raises(InputError, match=rf"{name} was 0\.0\.1 and is now .*choose another folder"):
        RunFolder(tmp_path, "a test", former="resume")
    with pytest.raises(InputError) as caught:
        RunFolder(tmp_path, "a test")
    assert "resume" not in str(caught.value)
    assert (tmp_path / "run.json").read_text() == before


def test_other_versions_are_remembered_and_notes_said_anew(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.note("no longer so")
    now = record(tmp_path)["versions"]
    rewrite(tmp_path, versions={**now, "numpy": "1.0", "python": "3.0"})
    with RunFolder(tmp_path, "a test", former="resume") as run:
        run.note("so")
    found = record(tmp_path)
    assert found["versions"] == now
    assert found["resumed"][0]["versions"] == {**now, "numpy": "1.0", "python": "3.0"}
    assert found["notes"] == ["so"]


def test_an_input_is_known_by_its_content(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.used("weights", {"digest": "a", "sizes": (1, 2)})
    with RunFolder(tmp_path, "a test", former="resume") as run:
        run.used("weights", {"digest": "a", "sizes": [1, 2]})
        with pytest.raises(InputError, match="weights is not what it was"):
            run.used("weights", {"digest": "b", "sizes": [1, 2]})


def test_a_lock_on_a_file_that_was_removed_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run ends after the second has opened the lock file and before it locks it."""
    first = Lock(tmp_path, "a test")
    opened = Lock._opened

    def slow(self: Lock) -> Any:
        file = opened(self)
        first.release()
        return file

    monkeypatch.setattr(Lock, "_opened", slow)
    second = Lock(tmp_path, "a test")
    with pytest.raises(InputError, match="still going on"):
        Lock(tmp_path, "a test")
    second.release()
    assert files(tmp_path) == set()


def test_the_record_is_that_of_the_run_that_ended_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run writes and ends while the second one waits for the folder."""
    first = RunFolder(tmp_path, "a test")
    opened = Lock._opened

    def waits(self: Lock) -> Any:
        with first:
            first.part("first", lambda: dataset(1.0))
        return opened(self)

    monkeypatch.setattr(Lock, "_opened", waits)
    with RunFolder(tmp_path, "a test", former="resume") as run:
        run.part("first", never)
    assert set(record(tmp_path)["hashes"]) == {"data/first.nc"}


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
                RunFolder(tmp_path, "a test", former=former)
        process.kill()
    assert record(tmp_path)["status"] == "running"
    with RunFolder(tmp_path, "a test", former="resume"):
        pass
    assert record(tmp_path)["status"] == "finished"
    assert files(tmp_path) == {"run.json"}


def test_the_report_of_a_run_that_is_still_going_on_is_written_outside_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder(tmp_path / "run", "a test") as run:
        run.part("first", lambda: dataset(1.0))
        with pytest.raises(InputError, match=r"still going on; .* with skipscope\.report\.write_page\(paths, out\)"):
            write_report(tmp_path / "run")
        assert run_command(monkeypatch, "report", tmp_path / "run") == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "wait for it or write the page outside of its folder, with --out FILE" in said
        assert run_command(monkeypatch, "report", tmp_path / "run", "--out", tmp_path / "now.html") == 0
    assert (tmp_path / "now.html").is_file()


def test_a_saved_run_is_read_again(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "a test") as run:
        run.part("b", lambda: dataset(1.0))
        run.part("a", lambda: dataset(2.0))
    saved = load_run(tmp_path / "run")
    assert saved.names == ("b", "a")
    assert saved.dataset("a")["a"].item() == 2.0
    assert saved.claims == ()
    assert saved.changed == ()
    with pytest.raises(InputError, match="it has b, a"):
        saved.dataset("c")
    with pytest.raises(InputError, match=r"no run\.json"):
        load_run(tmp_path)
    (tmp_path / "run" / "claims.json").write_text('[{"id": "D1"}]')
    with pytest.raises(InputError, match="not a list of claims"):
        load_run(tmp_path / "run")


def test_a_file_that_was_changed_is_named(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.part("first", lambda: dataset(1.0))
        run.part("second", lambda: dataset(2.0))
        run.write_text("figures/a.txt", "a")
    dataset(3.0).to_netcdf(tmp_path / "data/second.nc", engine="h5netcdf")
    (tmp_path / "figures/a.txt").unlink()
    saved = load_run(tmp_path)
    assert saved.changed == ("data/second.nc",)
    assert saved.names == ("first", "second")


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert digest(tmp_path / "a") == digest(str(tmp_path / "a")) == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(InputError, match="cannot be read"):
        digest(tmp_path / "nowhere")


# -- files that were changed


def decided(path: Path) -> Path:
    texts = ("D3", "a paper", "a claim", "a statistic", "bounds violated exactly 0")
    claim = Decision(*texts, {"bounds violated": 0}, "inconclusive", "quick", "a test", study="D.law")
    with RunFolder(path, "a test", parameters={"images": 3}, seed=5) as run:
        run.part("first", lambda: dataset(1.0))
        run.write_claims([claim])
        run.note("an accuracy of 95.88 %")
    return path


def numbers(path: Path) -> tuple[Any, ...]:
    found = load(path)
    return found.parameters, found.seed, found.claims, {n: d.to_dict() for n, d in found.datasets.items()}


@pytest.mark.filterwarnings("ignore:.*older version")
@pytest.mark.parametrize("name", ["run.json", "claims.json", "data/first.nc"])
def test_no_flipped_bit_gives_another_number(name: str, tmp_path: Path) -> None:
    file = decided(tmp_path) / name
    whole, expected = file.read_bytes(), numbers(tmp_path)
    for place, changed in flipped(whole, 60):
        file.write_bytes(changed)
        try:
            assert numbers(tmp_path) == expected, place
        except InputError:
            continue  # refused
    file.write_bytes(whole + b"\n")
    assert load_run(tmp_path).changed == (name,)
    with pytest.raises(InputError, match=r"not as the run wrote them.*put back copies"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "data/first.nc"])
def test_no_flipped_bit_is_resumed_from(name: str, tmp_path: Path) -> None:
    file = decided(tmp_path) / name
    whole = {path: path.read_bytes() for path in (file, tmp_path / "run.json")}
    for place, changed in itertools.islice(flipped(whole[file], 30), 30 if name == "run.json" else 5):
        file.write_bytes(changed)
        try:
            with RunFolder(tmp_path, "a test", parameters={"images": 3}, seed=5, former="resume") as run:
                computed = []
                run.part("first", lambda: computed.append(True) or dataset(1.0))  # noqa: B023
            assert bool(computed) == (name != "run.json"), place
            assert bool(record(tmp_path).get("notes")) == (bool(computed) or name == "run.json"), place
        except InputError:
            assert name == "run.json", place
        for path, content in whole.items():
            path.write_bytes(content)


def test_a_note_says_which_part_was_damaged(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.part("first", lambda: dataset(1.0))
    (tmp_path / "data/first.nc").write_bytes(b"something else")
    with RunFolder(tmp_path, "a test", former="resume") as run:
        run.part("first", lambda: dataset(1.0))
    assert record(tmp_path)["notes"] == ["data/first.nc was not as the run wrote it, and was computed again"]
    (tmp_path / "data/first.nc").unlink()  # which is no damage
    with RunFolder(tmp_path, "a test", former="resume") as run:
        run.part("first", lambda: dataset(1.0))
    assert "notes" not in record(tmp_path)


def test_a_kill_between_a_file_and_the_record_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder(tmp_path, "a test") as run:
        run.part("first", lambda: dataset(1.0))
        before = run.record["hashes"]["data/first.nc"]

        def killed(path: Path, content: bytes, within: Path) -> None:
            write_whole(path, content, within=within)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("skipscope.runs.folder.write_whole", killed)
            with pytest.raises(KeyboardInterrupt):
                run.write_dataset("first", dataset(2.0))
        assert record(tmp_path)["hashes"]["data/first.nc"] == "" != before
    with RunFolder(tmp_path, "a test", former="resume") as run:
        assert run.part("first", lambda: dataset(3.0))["a"].item() == 3.0
    assert "notes" not in record(tmp_path)


def by_hand(path: Path, **changes: Any) -> None:
    (path / "run.json").write_text(json.dumps({**record(path), **changes}))


def test_a_record_that_was_changed_by_hand_is_not_resumed_and_stays_known_as_changed(tmp_path: Path) -> None:
    decided(tmp_path)
    by_hand(tmp_path, notes=["an accuracy of 96.15 %"])
    with pytest.raises(InputError, match=r"run\.json is not as the run wrote it.*put back a copy"):
        RunFolder(tmp_path, "a test", parameters={"images": 3}, seed=5, former="resume")
    with RunFolder.reopened(tmp_path) as run:  # as the report does
        run.write_text("report.html", "made again")
    assert load_run(tmp_path).changed == ("run.json",)
    with pytest.raises(InputError, match="not as the run wrote them"):
        load(tmp_path)
    with RunFolder(tmp_path, "a test", former="replace"):
        pass
    assert load_run(tmp_path).changed == ()


def test_a_record_of_before_there_were_digests_is_read_and_resumed_with_a_note(tmp_path: Path) -> None:
    decided(tmp_path)
    write_record(tmp_path, {key: value for key, value in record(tmp_path).items() if key != KEY}, "missing")
    with RunFolder.reopened(tmp_path) as run:
        run.write_text("report.html", "made again")
    saved = load_run(tmp_path)
    assert saved.changed == ()
    assert len(saved.claims) == 1
    assert "older version" in saved.flaws[0]
    with pytest.warns(UserWarning, match="older version"):
        assert load(tmp_path)["first"]["a"].item() == 1.0
    with RunFolder(tmp_path, "a test", parameters={"images": 3}, seed=5, former="resume") as run:
        run.part("first", never)
    assert "older version" in record(tmp_path)["notes"][0]
    assert load_run(tmp_path).flaws == ()


def test_claims_that_no_run_decided_are_not_shown(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "a test"):
        pass
    (tmp_path / "run" / "claims.json").write_bytes((decided(tmp_path / "other") / "claims.json").read_bytes())
    saved = load_run(tmp_path / "run")
    assert saved.claims == ()
    assert saved.changed == ("claims.json",)


def test_nothing_is_written_through_a_link_that_leads_out_of_the_folder(tmp_path: Path) -> None:
    decided(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "run" / "figures").symlink_to(tmp_path / "mine")
    with RunFolder.reopened(tmp_path / "run") as run, pytest.raises(InputError, match="not inside of the run folder"):
        run.write_text("figures/a.html", "")
    assert files(tmp_path / "mine") == set()


WHOLE: dict[str, Any] = {"what": "a test", "status": "finished", "parameters": {}, "hashes": {}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected a mapping, got a list"),
        (5, "expected a mapping, got 5"),
        ({}, "it has no 'what'"),
        ({**WHOLE, "what": None}, "expected 'what' to be a text, got null"),
        ({**WHOLE, "parameters": None}, "expected 'parameters' to be a mapping, got null"),
        ({**WHOLE, "hashes": 5}, "expected 'hashes' to be a mapping, got 5"),
        ({**WHOLE, "hashes": {"data/a.nc": 5}}, "expected texts in 'hashes', got 5"),
        ({**WHOLE, "notes": "a note"}, "expected 'notes' to be a list, got a text"),
        ({**WHOLE, "notes": [{}]}, "expected texts in 'notes', got a mapping"),
        ({**WHOLE, "versions": [1]}, "expected 'versions' to be a mapping, got a list"),
    ],
)
def test_a_broken_record_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps(content))
    calls: list[Any] = [
        lambda: load_run(tmp_path),
        lambda: RunFolder(tmp_path, "a test", former="resume"),
        lambda: RunFolder(tmp_path, "a test", former="replace"),
        lambda: RunFolder.reopened(tmp_path),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"run\.json is no record of a run") as caught:
            call()
        assert message in str(caught.value)
    assert files(tmp_path) == {"run.json"}


def test_a_run_of_the_version_that_counted_stages_from_zero_says_so(tmp_path: Path) -> None:
    path = decided(tmp_path / "run")
    assert load_run(path).flaws == ()
    record = json.loads((path / "run.json").read_text())
    record["versions"]["skipscope"] = "0.1.0"
    record.pop(KEY)
    write_record(path, record)
    assert load_run(path).flaws == (
        "Version 0.1.0 made it: its stages are counted from 0, the names of its units from stage1.",
    )


CLAIM: dict[str, Any] = {
    **dict.fromkeys(("id", "paper", "claim", "statistic", "expected", "preset", "reason"), "text"),
    "measured": {},
    "verdict": "reproduced",
}
OUTCOME: dict[str, Any] = {"quantity": "a", "relation": "<=", "threshold": 1, "passed": True}
PART: dict[str, Any] = {
    **dict.fromkeys(("name", "subject", "reason"), "text"),
    "verdict": "reproduced",
    "networks": 3,
    "outcomes": [],
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 1}, "not a list of claims, but a mapping"),
        (["x"], "number 1: expected a mapping, got a text"),
        ([CLAIM, {**CLAIM, "verdict": "maybe"}], "number 2: expected a verdict of reproduced, partly reproduced"),
        (
            [{**CLAIM, "parts": [{**PART, "verdict": "maybe"}]}],
            "number 1: expected a verdict of reproduced, partly reproduced",
        ),
        ([{**CLAIM, "parts": [{"name": "a"}]}], "number 1 is no claim"),
        ([{**CLAIM, "parts": [{**PART, "name": 3}]}], "number 1: expected a text as the name of a part, got 3"),
        ([{**CLAIM, "outcomes": [{**OUTCOME, "mean": [1]}]}], "number 1: a: expected a number as its mean, got (1,)"),
        ([{**CLAIM, "verdict": []}], "expected a verdict"),
        ([{**CLAIM, "measured": None}], "expected a mapping of what was measured, got null"),
        ([{**CLAIM, "id": 3}], "expected a text as its id, got 3"),
        ([{**CLAIM, "study": 3}], "expected a text as its study, got 3"),
        ([{**CLAIM, "more": 3}], "is no claim"),
        ([{**CLAIM, "outcomes": 3}], "is no claim"),
        ([{**CLAIM, "outcomes": ["x"]}], "is no claim"),
        (
            [{**CLAIM, "outcomes": [{"quantity": "a", "relation": "~", "threshold": 1, "passed": True}]}],
            "no outcome is '~', True",
        ),
    ],
)
def test_broken_claims_are_one_line(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps(WHOLE))
    (tmp_path / "claims.json").write_text(json.dumps([CLAIM]))
    assert load_run(tmp_path).claims[0].verdict == "reproduced"
    (tmp_path / "claims.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"claims\.json is not a list of claims") as caught:
        load_run(tmp_path)
    assert message in str(caught.value)


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


# -- versions of the form of files


def test_files_carry_the_version_of_their_form(tmp_path: Path) -> None:
    decision = Decision("D3", "D", "a claim", "a number", "one", {"ones": 2.0}, "not reproduced", "smoke")
    with RunFolder(tmp_path, "a test") as run:
        run.write_claims([decision])
    assert record(tmp_path)["schema"] == 1
    assert [claim["schema"] for claim in json.loads((tmp_path / "claims.json").read_text())] == [2]


def test_a_record_without_a_version_is_read(tmp_path: Path) -> None:
    content = {"what": "a test", "status": "finished", "parameters": {}, "hashes": {}}
    (tmp_path / "run.json").write_text(json.dumps(content))
    assert load_run(tmp_path).record["what"] == "a test"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (2, "has schema 2, and this version reads up to 1; install the later version"),
        ("1", "whole number"),
        (0, "got 0"),
    ],
)
def test_a_record_of_a_later_version_is_refused(tmp_path: Path, schema: object, message: str) -> None:
    content = {"schema": schema, "what": "a test", "status": "finished", "parameters": {}, "hashes": {}}
    (tmp_path / "run.json").write_text(json.dumps(content))
    for read in (load_run, load, lambda path: RunFolder(path, "a test", former="replace")):
        with pytest.raises(InputError, match=message):
            read(tmp_path)
    assert json.loads((tmp_path / "run.json").read_text()) == content


def test_claims_of_a_later_version_are_refused(tmp_path: Path) -> None:
    decision = Decision("D3", "D", "a claim", "a number", "one", {"ones": 2.0}, "not reproduced", "smoke")
    with RunFolder(tmp_path, "a test") as run:
        run.write_json("claims.json", [{**decision.to_dict(), "schema": 3, "more": "unknown"}])
    with pytest.raises(InputError, match=r"claims.json was written by a later version of skipscope: it has schema 3"):
        load_run(tmp_path)


def test_a_digest_of_tensors_sees_every_value(tmp_path: Path) -> None:
    from skipscope.runs.files import digest_of_tensors

    values = {"a": torch.tensor(1.0, dtype=torch.bfloat16), "b": (torch.arange(3), "text")}
    found = {digest_of_tensors(values)}
    found.add(digest_of_tensors({**values, "b": (torch.arange(3), "text")}))
    assert len(found) == 1
    for other in ({"b": (torch.arange(3), "txt")}, {"b": (torch.tensor([0, 1, 3]), "text")}, {"c": torch.zeros(0)}):
        found.add(digest_of_tensors({**values, **other}))
    assert len(found) == 4


def test_a_file_system_without_locks_is_used_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.warns(UserWarning, match="has no locks"), RunFolder(tmp_path / "run", "a test") as run:
        run.write_text("a.txt", "a")
    (note,) = record(tmp_path / "run")["notes"]
    assert "has no locks (No locks available): a second run in this folder would not be noticed" in note


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(InputError, match=r"\.lock is a link, which no run makes; remove it"):
        RunFolder(tmp_path / "run", "a test")
    assert not (tmp_path / "victim").exists()


def test_states_of_trainings_are_removed_when_the_run_is_finished(tmp_path: Path) -> None:
    stale, kept = "checkpoints/a.training.safetensors", "checkpoints/b.training.safetensors"
    run = RunFolder(tmp_path, "a test")
    run.write("checkpoints/net.safetensors", b"")
    (tmp_path / stale).write_bytes(b"")
    run.__exit__(RuntimeError, RuntimeError(), None)
    assert stale in files(tmp_path)
    with RunFolder(tmp_path, "a test", former="resume") as run:
        run.write(kept, b"a result that has such a name")
    assert files(tmp_path) == {"run.json", "checkpoints/net.safetensors", kept}


def test_an_end_that_is_interrupted_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path, "a test")
    written, calls = run._write_record, []

    def interrupted_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        written()

    monkeypatch.setattr(run, "_write_record", interrupted_once)
    with pytest.raises(KeyboardInterrupt), run:
        pass
    assert record(tmp_path)["status"] == "interrupted"


def test_a_disk_that_is_full_at_the_end_does_not_hide_why_the_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = RunFolder(tmp_path, "a test")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RuntimeError, match="the reason"), run:
        raise RuntimeError("the reason")
    assert record(tmp_path)["status"] == "running"


def test_a_file_that_cannot_be_replaced_keeps_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def broken(source: Path, target: Path) -> None:
        if target.name == "report.html":
            raise OSError(errno.EIO, "Input/output error")
        real(source, target)

    with RunFolder(tmp_path, "a test") as run:
        run.write_text("report.html", "the first")
    monkeypatch.setattr(os, "replace", broken)
    with RunFolder.reopened(tmp_path) as run, pytest.raises(InputError, match="Input/output error"):
        run.write_text("report.html", "the second")
    assert load_run(tmp_path).changed == ()
