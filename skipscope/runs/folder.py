"""A run folder: everything that a run leaves behind, and where it came from.

    run.json                    what, parameters, preset, seed, versions, device, start, end, status, notes, hashes,
                                the version of its form (schema)
    claims.json                 a list of decided claims
    data/NAME.nc                one labelled dataset per measurement
    checkpoints/NAME.safetensors
    figures/, report.html

Every file is written beside its place and moved into it, so it is there whole or not at all. `status` is `running`
until the run ends as `finished`, `interrupted` (Ctrl-C, SIGTERM), `out of memory` or `failed` (both with `error`); any
but a finished one can be resumed. `hashes` holds the SHA-256 of every
file of the run: what a later run may replace, and nothing else. It is empty while a file is replaced by a new one, so
that a hash that does not fit is never what a kill left. run.json holds a digest of itself (`sealed.py`).

A run is made of parts (`part`): a dataset that is there, whole and with its hash, is read instead of computed. That is
all there is to resuming: the run goes through the same lines again, finds most of them done, and writes its notes
again; those that were written while a part was computed belong to it (`notes_of`) and come back when it is read.
Parts of different versions of skipscope or torch are not mixed; other libraries may differ, and `resumed` has for every
resumption its time and the versions that the run had until then. A lock, which the system gives back even when a
process is killed, distinguishes a run that is going on from one that was stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from skipscope.errors import InputError, SkipscopeError, out_of_memory
from skipscope.runs.datasets import dataset_bytes, read_dataset
from skipscope.runs.decisions import Decision
from skipscope.runs.files import as_json, digest, plain
from skipscope.runs.lock import Lock
from skipscope.runs.record import (
    NAME,
    SCHEMA,
    differences_of,
    inside,
    is_changed,
    left_nothing,
    read_record,
    versions,
    write_record,
)
from skipscope.runs.whole_files import HALF_WRITTEN, reason_of, remove, remove_half_written, write_whole
from skipscope.sealed import Seal, tensor_file

if TYPE_CHECKING:
    import xarray
    from torch import nn

Former = Literal["refuse", "replace", "resume"]
FORMER = get_args(Former)
TRAINING = "checkpoints/*.training.safetensors"  # states of trainings that are not done: for resuming, and no result


class RunFolder:
    """Used as a context: leaving it writes the end and the status into run.json."""

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        preset: str = "",
        seed: int | None = None,
        device: str = "cpu",
        former: Former = "refuse",
        resumable: bool = True,
    ) -> None:
        """A new or empty folder, or one that holds a former run of the same `what`.

        former: what to do with that run: refuse the folder, remove the run's files, or go on with it, which needs the
        same parameters, preset, seed, device and versions of skipscope and torch. One that failed before it had any
        result is replaced. resumable: whether a caller can ask
        for the last of these, so that a refusal may advise it.
        """
        if former not in FORMER:
            raise InputError(f"former={former!r}: expected one of {', '.join(FORMER)}")
        self.path = Path(path)
        asked = {
            "what": what,
            "parameters": plain(dict(parameters or {})),
            "preset": preset,
            "seed": seed,
            "device": device,
        }
        self._ends = True  # leaving the context ends the run
        self._seal: Seal = "whole"
        self._listening: list[list[str]] = []  # for each part that is being computed, the notes written meanwhile
        self._lock = Lock(self.path, what)  # before anything is looked at: another run may be about to end
        try:
            found, seal = self._found(what)
            if found is not None and seal != "changed" and left_nothing(self.path, found):
                former = "replace"
            if found is not None and former != "replace":
                self._require_same(found, asked, former, resumable)
            if former == "resume" and seal == "changed":
                raise InputError(
                    f"{self.path} cannot be resumed: {NAME} is not as the run wrote it (its SHA-256 is not the one in "
                    "it); put back a copy of it, or choose another folder"
                )
            remove_half_written(self.path)
            if found is not None and former == "replace":
                self._remove_files(found)
                self._remove_training()
            going_on = found is not None and former == "resume"
            self.record: dict[str, Any] = (
                found if going_on and found else {"schema": SCHEMA, **asked, "start": _now(), "hashes": {}}
            )
            if going_on:
                self.record.setdefault("resumed", []).append({"time": _now(), "versions": self.record["versions"]})
                self.record.pop("error", None)
                self.record.pop("notes", None)
            self.record.update(versions=versions(), end=None, status="running")
            self._write_record()
            if going_on and seal == "missing":
                self.note(
                    f"resumed from a {NAME} of an older version, without a digest of itself: "
                    "whether it was changed before is not known"
                )
            if self._lock.lacking:
                self.note(self._lock.lacking)
                warnings.warn(self._lock.lacking, stacklevel=2)
        except BaseException:
            self._lock.release(refused=True)
            raise

    @classmethod
    def reopened(cls, path: Path, instead: str = "read it as it is") -> Self:
        """A run that is there, to add files that are made from what is in it; its record stays but for their hashes.

        instead: what a refusal advises where the run is still going on.
        """
        run = cls.__new__(cls)
        run.path, run._ends, run._listening = path, False, []
        run._lock = Lock(path, read_record(path)[0]["what"], instead)
        try:
            run.record, run._seal = read_record(path)  # once more: it may have changed until the folder was ours
            remove_half_written(path)
        except BaseException:
            run._lock.release()
            raise
        return run

    # -- what a run leaves

    def write_text(self, name: str, text: str) -> Path:
        return self.write(name, text.encode("utf-8", errors="backslashreplace"))

    def write_json(self, name: str, content: Any) -> Path:
        return self.write_text(name, as_json(content) + "\n")

    def write_claims(self, decisions: Sequence[Decision]) -> Path:
        return self.write_json("claims.json", [decision.to_dict() for decision in decisions])

    def write_dataset(self, name: str, dataset: xarray.Dataset) -> Path:
        return self.write(f"data/{name}.nc", dataset_bytes(dataset))

    def remove_dataset(self, name: str) -> None:
        """One that the run has no more; out of the record first, so that a kill leaves nothing that it lacks."""
        file = f"data/{name}.nc"
        if self.record["hashes"].pop(file, None) is not None:
            self._write_record()
            if inside(self.path, file):
                remove(self.path / file)

    def write_checkpoint(self, name: str, model: nn.Module) -> Path:
        return self.write(f"checkpoints/{name}.safetensors", tensor_file(model.state_dict()))

    def copy(self, file: Path, name: str) -> Path:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {reason_of(error)}") from error
        return self.write(name, content)

    # -- its parts, computed once

    def part(self, name: str, compute: Callable[[], xarray.Dataset]) -> xarray.Dataset:
        """data/NAME.nc if this run has it already, otherwise what `compute` gives, kept under that name."""
        file = f"data/{name}.nc"
        if self.has(file):
            for text in self.record.get("notes_of", {}).get(name, []):
                self.note(text)
        else:
            if is_changed(self.path, file, self.record["hashes"]):
                self.note(f"{file} was not as the run wrote it, and was computed again")
            notes: list[str] = []
            self._listening.append(notes)
            try:
                found = compute()
            finally:
                self._listening.pop()
            if notes:
                self.record.setdefault("notes_of", {})[name] = notes
            self.write_dataset(name, found)
        # Read back in either case: what a resumed run goes on with is what an unbroken one went on with.
        return read_dataset(self.path / file, self.record["hashes"][file])

    def has(self, name: str) -> bool:
        """Is this file of the run there, and as it was written?"""
        path = self.path / name
        return path.is_file() and self.record["hashes"].get(name) == digest(path)

    def datasets(self) -> dict[str, xarray.Dataset]:
        """Those that are there, and as they were written; of a new run none."""
        names = [name for name in self.record["hashes"] if name.startswith("data/") and name.endswith(".nc")]
        return {
            name.removeprefix("data/").removesuffix(".nc"): read_dataset(self.path / name, self.record["hashes"][name])
            for name in names
            if inside(self.path, name) and self.has(name)
        }

    def put_in_order(self, names: Sequence[str]) -> None:
        """Files that were made in any order are listed in this one, at the place of the first of them."""
        hashes: dict[str, str] = self.record["hashes"]
        these = [name for name in dict.fromkeys(names) if name in hashes]
        places = iter(these)
        listed = [next(places) if name in these else name for name in hashes]
        if listed != list(hashes):
            self.record["hashes"] = {name: hashes[name] for name in listed}
            self._write_record()

    def used(self, name: str, description: Mapping[str, Any]) -> None:
        """An input of the run, by its content; one that has changed since the run began is refused."""
        known = self.record.setdefault("inputs", {})
        described = plain(dict(description))
        if known.setdefault(name, described) != described:
            raise InputError(f"{self.path} cannot be resumed: {name} is not what it was; choose another folder")
        self._write_record()

    def note(self, text: str) -> None:
        """Something that a reader of the results must know; written once into run.json."""
        for heard in self._listening:
            if text not in heard:
                heard.append(text)
        notes = self.record.setdefault("notes", [])
        if text not in notes:
            notes.append(text)
            self._write_record()

    # -- its beginning and end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if self._ends:
                try:
                    self._end(error)
                except KeyboardInterrupt as late:  # while the end was written
                    self._end(late)
                    raise
        finally:
            self._lock.release()

    def _end(self, error: BaseException | None) -> None:
        status = _status_after(error)
        if status in ("failed", "out of memory"):
            self.record["error"] = f"{type(error).__name__}: {error}"
        self.record.update(status=status, end=_now())
        try:
            self._write_record()
        except InputError:
            if error is None:
                raise
            # The disk that ended the run may not take its record either: that stays at "running", as after a kill.
        if status == "finished":
            self._remove_training()

    def _found(self, what: str) -> tuple[dict[str, Any] | None, Seal]:
        """The record of a former run of the same kind; a folder with anything else in it is refused.

        A run that was killed while it wrote its first record leaves nothing that counts.
        """
        names = sorted(entry.name for entry in self.path.iterdir())
        names = [name for name in names if name != Lock.NAME and not HALF_WRITTEN.fullmatch(name)]
        if not names:
            return None, "missing"
        kind = f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        if NAME in names:
            try:
                former, seal = read_record(self.path)
            except InputError as error:
                raise InputError(f"{error}; choose another folder") from error
            if former["what"] == what:
                return former, seal
            kind = f"one of {former['what']}"
        raise InputError(
            f"{self.path} is not empty and holds no former run of {what} (but {kind}); choose another folder"
        )

    def _require_same(
        self, found: Mapping[str, Any], asked: Mapping[str, Any], former: Former, resumable: bool
    ) -> None:
        differences = differences_of(found, asked)
        if former == "refuse":
            change = "" if differences or not resumable else " (former='resume' goes on with it)"
            raise InputError(
                f"{self.path} holds a run of {asked['what']} with status '{found['status']}'{change}; "
                "choose another folder"
            )
        if differences:
            raise InputError(
                f"{self.path} cannot be resumed: {'; '.join(differences[:4])}"
                f"{'; ...' if len(differences) > 4 else ''}; choose another folder"
            )

    def _remove_files(self, found: Mapping[str, Any]) -> None:
        for name in found["hashes"]:
            if inside(self.path, name) and not (self.path / name).is_dir():
                try:
                    (self.path / name).unlink(missing_ok=True)
                except OSError as error:
                    why = reason_of(error)
                    raise InputError(f"{self.path / name} cannot be removed: {why}; choose another folder") from error

    def _remove_training(self) -> None:
        """States of trainings that a kill left beside the networks that they led to."""
        for file in self.path.glob(TRAINING):
            name = file.relative_to(self.path).as_posix()
            if name not in self.record["hashes"] and inside(self.path, name):
                remove(file)

    # -- files

    def write(self, name: str, content: bytes) -> Path:
        """A file of the run."""
        path, hashes = self.path / name, self.record["hashes"]
        if not inside(self.path, name):  # a link in a folder that came from somebody else
            raise InputError(
                f"{path} is not inside of the run folder {self.path}; remove the link that leads out of it"
            )
        former = hashes.get(name)
        if former is not None:
            hashes[name] = ""
            self._write_record()
        try:
            write_whole(path, content, within=self.path)
        except InputError:
            if former is not None:  # the former file is still there, whole
                hashes[name] = former
                with contextlib.suppress(InputError):
                    self._write_record()
            raise
        hashes[name] = hashlib.sha256(content).hexdigest()
        self._write_record()
        return path

    def _write_record(self) -> None:
        write_record(self.path, self.record, self._seal)


def _status_after(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return "out of memory" if out_of_memory(error) and not isinstance(error, SkipscopeError) else "failed"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
