"""Studies split into tasks: the same datasets and claims, byte for byte, whatever executes them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import xarray

from skipscope.papers.kit import Bench
from skipscope.papers.kit.running import run_studies
from skipscope.runs import RunFolder, load_run
from skipscope.runs.executors import Execution
from skipscope.runs.sweep import Task

HERE, PROCESSES = Execution(), Execution("processes", 2)


def assert_same_runs(study: str, execution: Execution, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for name, chosen in (("usual", None), ("tasks", execution)):
        monkeypatch.setenv("SKIPSCOPE_CACHE", str(folder / f"cache-{name}"))
        run_studies(study, folder / name, preset="smoke", execution=chosen)
        runs.append(load_run(folder / name))
    usual, tasks = runs
    assert usual.names == tasks.names  # in the same order
    for file in (*(f"data/{name}.nc" for name in usual.names), "claims.json"):
        assert (usual.path / file).read_bytes() == (tasks.path / file).read_bytes(), file
    assert usual.record.get("inputs") == tasks.record.get("inputs")
    assert usual.record.get("notes") == tasks.record.get("notes")
    assert tasks.record["execution"] == execution.to_dict()


@pytest.mark.parametrize("study", ["B.theorem1", pytest.param("C.generalisation", marks=pytest.mark.slow)])
def test_a_study_in_tasks_is_the_same_run(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_runs(study, HERE, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("study", ["A.collapse", "B.learning", "B.shortcuts", "C.accuracy", "D.spectra", "D.law"])
def test_a_study_in_two_processes_is_the_same_run(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_runs(study, PROCESSES, tmp_path, monkeypatch)


def test_a_sweep_goes_on_and_what_cannot_be_sent_is_computed_here(tmp_path: Path) -> None:
    computed: list[int] = []

    def shared(number: int) -> xarray.Dataset:  # a closure: no other process finds it
        computed.append(number)
        return xarray.Dataset({"number": number})

    tasks = [Task(str(number), partial(shared, number)) for number in range(2)]
    tasks.append(Task("sent", partial(with_a_note, 3)))
    with RunFolder(tmp_path / "run", "test") as run:
        bench = Bench("X.study", run, preset="smoke", seed=0, device="cpu", execution=HERE)
        first = bench.sweep(tasks)
        again = bench.sweep(tasks)
        assert [int(data["number"]) for data in first] == [0, 1, 3]
        assert all(one.identical(other) for one, other in zip(first, again, strict=True))
        assert computed == [0, 1]
        notes = run.record["notes"]
        assert sum("computed by the driver: what it is made from cannot be sent" in note for note in notes) == 2
        assert list(run.record["hashes"]) == ["data/study-0.nc", "data/study-1.nc", "data/study-sent.nc"]


def with_a_note(number: int) -> xarray.Dataset:
    return xarray.Dataset({"number": number})


def test_files_of_a_run_are_listed_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "test") as run:
        for name in ("first", "c", "a", "last", "b"):
            run.write_text(name, name)
        run.put_in_order(["a", "b", "c", "not there"])
        assert list(run.record["hashes"]) == ["first", "a", "b", "last", "c"]
    assert list(load_run(tmp_path / "run").record["hashes"]) == ["first", "a", "b", "last", "c"]
