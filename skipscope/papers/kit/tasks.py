"""Datasets of a study as tasks: what `bench.sweep` does where an executor was chosen.

A worker computes a dataset as this process would: with a bench, on a run folder of its own that is empty and thrown
away. What it left there (the dataset, pieces of it, networks that it trained, notes) goes back to the driver, which
writes it into the run. The worker reads what the run has already, where it sees the run's folder; networks are also
found in the cache, and otherwise trained once more, which gives the same ones.

A task holds on to its bench, which stays with the driver: in its place the worker puts its own. What cannot be sent,
since it shares an object in memory with other tasks, is computed by the driver, and the run says so.
"""

from __future__ import annotations

import io
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.cores import threads_of
from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.papers.kit.bench import Bench
from skipscope.runs import RunFolder, read_dataset
from skipscope.runs.executors import Execution, perform_all
from skipscope.runs.executors import Task as Sent
from skipscope.runs.executors.task import importable_alone
from skipscope.runs.files import key_of
from skipscope.runs.record import NAME, read_record
from skipscope.runs.sweep import Task
from skipscope.training import Settings
from skipscope.training.network_files import Trained, own_file, read
from skipscope.training.networks import Network

if TYPE_CHECKING:
    import xarray

BENCH = "the bench"  # what a sent task has in the place of its bench
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Piece:
    """What a worker needs beside the task itself to make a dataset."""

    study: str
    name: str  # of the dataset
    studies: tuple[str, ...]
    preset: str
    seed: int
    device: str
    folder: Path  # of the run
    compute: bytes


@dataclass(frozen=True)
class Left:
    """What a worker's run folder had in the end."""

    files: Mapping[str, bytes]  # in the order in which they were written
    notes: Sequence[str] = ()
    notes_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)


def swept_as_tasks(
    bench: Bench, tasks: Iterable[Task], studies: Sequence[str], progress: Progress | None, execution: Execution
) -> list[xarray.Dataset]:
    """The datasets of all tasks, in their order; those that the run has are not computed again."""
    total = len(tasks) if isinstance(tasks, Sequence) else None
    names: list[str] = []
    files: dict[str, list[str]] = {}  # by the name of a dataset, what came with it, in the order of its making
    done = 0

    def report(more: int = 0) -> None:
        nonlocal done
        done += more
        if progress is not None and total is not None:
            progress(done, total)

    def coming() -> Iterator[Sent]:
        for task in tasks:
            name = bench.name_of(task.name, bool(studies))
            names.append(name)
            if bench.run.has(f"data/{name}.nc"):
                report(1)
                continue
            compute = _sendable(task, bench)
            if compute is None:
                with threads_of(execution.threads):
                    bench.shared(name, task.compute, studies)
                bench.note(f"data/{name}.nc was computed by the driver: what it is made from cannot be sent")
                report(1)
                continue
            folder = bench.run.path.resolve()
            about = (bench.preset, bench.seed, bench.device, folder)
            piece = Piece(bench.study, name, tuple(studies), *about, compute)
            # All that determines a dataset of a run, but for the content of files, which the run checks itself.
            record = {key: bench.run.record[key] for key in ("what", "parameters", "preset", "seed", "device")}
            key = key_of({"run": record, "study": bench.study, "name": name})
            yield Sent(f"{bench.study}: {name}", computed, {"piece": piece}, key, about=name)

    def keep(task: Sent, left: Left) -> None:
        files[str(task.about)] = list(left.files)
        for text in left.notes:
            bench.run.note(text)
        for name, about in left.inputs.items():
            bench.run.used(name, about)
        if left.notes_of:
            bench.run.record.setdefault("notes_of", {}).update({name: list(own) for name, own in left.notes_of.items()})
        for name, content in left.files.items():
            if not bench.run.has(name):
                bench.run.write(name, content)
        report(1)

    report()
    perform_all(coming(), execution, keep, note=bench.note)
    bench.run.put_in_order([file for name in names for file in files.get(name, [f"data/{name}.nc"])])
    hashes = bench.run.record["hashes"]
    return [read_dataset(bench.run.path / f"data/{name}.nc", hashes[f"data/{name}.nc"]) for name in names]


def computed(piece: Piece) -> Left:
    """In a worker."""
    with tempfile.TemporaryDirectory() as own:
        with RunFolder(Path(own) / "run", f"a part of study {piece.study}", seed=piece.seed) as run:
            bench = _WorkersBench(piece, run)
            compute = _Unpickler(io.BytesIO(piece.compute), bench).load()
            bench.shared(piece.name, compute, piece.studies)
        files = {name: (run.path / name).read_bytes() for name in run.record["hashes"]}
        about = {
            key: run.record.get(key, default) for key, default in (("notes", []), ("notes_of", {}), ("inputs", {}))
        }
        return Left(files, **about)


class _WorkersBench(Bench):
    """On a run folder of its own, with a look at what the run itself has."""

    def __init__(self, piece: Piece, run: RunFolder) -> None:
        super().__init__(piece.study, run, preset=piece.preset, seed=piece.seed, device=piece.device)
        self._folder = piece.folder
        self._hashes = read_record(piece.folder)[0]["hashes"] if (piece.folder / NAME).is_file() else {}

    def has(self, name: str) -> bool:
        return super().has(name) or bool(self._hashes.get(f"data/{self._own(name)}.nc"))

    def shared(self, name: str, compute: Callable[[], xarray.Dataset], studies: Sequence[str] = ()) -> xarray.Dataset:
        file = f"data/{name}.nc"
        if self._hashes.get(file):
            return read_dataset(self._folder / file, self._hashes[file])
        return super().shared(name, compute, studies)

    def trained(
        self, model: str, data: Dataset, settings: Settings, *, seed: int, snapshots: Sequence[int] = ()
    ) -> Trained:
        return self.trained_fleet([Network(model, data, settings, seed, self.device, tuple(snapshots))])[0]

    def trained_fleet(self, networks: Sequence[Network]) -> list[Trained]:
        there = [self._trained_before(network) for network in networks]
        missing = [network for network, found in zip(networks, there, strict=True) if found is None]
        made = iter(super().trained_fleet(missing) if missing else [])
        return [next(made) if found is None else found for found in there]

    def _trained_before(self, network: Network) -> Trained | None:
        key = network.key
        own = own_file(network, key)
        if own not in self._hashes:
            return None
        try:
            return read(network, key, self._folder, own, self.note)
        except InputError:  # damaged, which the run itself finds out
            return None


def _sendable(task: Task, bench: Bench) -> bytes | None:
    """None where the task holds on to something that only this process has."""
    file = io.BytesIO()
    try:
        _Pickler(file, bench).dump(task.compute)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, bench: Bench) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._bench = bench

    def persistent_id(self, value: Any) -> str | None:
        return BENCH if value is self._bench else None

    def reducer_override(self, value: Any) -> Any:
        return importable_alone(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, bench: Bench) -> None:
        super().__init__(file)
        self._bench = bench

    def persistent_load(self, name: Any) -> Bench:
        assert name == BENCH
        return self._bench
