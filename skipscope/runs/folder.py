"""A run folder: everything that a run leaves behind, and where it came from.

    run.json                    what, parameters, preset, seed, versions, device, start, end, status, hashes
    claims.json                 a list of decided claims
    data/NAME.nc                one labelled dataset a measurement
    checkpoints/NAME.safetensors
    figures/, report.html

Every file is written beside its place and moved into it, so it is there whole or not at all. `status` is `running`
until the run ends as `finished`, `interrupted` (Ctrl-C) or `failed` (with `error`). `hashes` holds the SHA-256 of every
file of the run: what a later run may replace, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from skipscope.errors import InputError
from skipscope.runs.claims import Decision

if TYPE_CHECKING:
    import xarray
    from torch import nn

ENDED = ("finished", "interrupted", "failed")
LIBRARIES = ("torch", "numpy", "xarray")


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
    ) -> None:
        """A new or empty folder, or one with an ended run of the same `what`, whose files are removed."""
        self.path = Path(path)
        self._make_room(what)
        self.record: dict[str, Any] = {
            "what": what,
            "parameters": plain(dict(parameters or {})),
            "preset": preset,
            "seed": seed,
            "versions": _versions(),
            "device": device,
            "start": _now(),
            "end": None,
            "status": "running",
            "hashes": {},
        }
        self._write_record()

    # -- what a run leaves

    def write_text(self, name: str, text: str) -> Path:
        return self._write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_json(self, name: str, content: Any) -> Path:
        return self.write_text(name, as_json(content) + "\n")

    def write_claims(self, decisions: Sequence[Decision]) -> Path:
        return self.write_json("claims.json", [decision.to_dict() for decision in decisions])

    def write_dataset(self, name: str, dataset: xarray.Dataset) -> Path:
        return self._write(f"data/{name}.nc", lambda path: dataset.to_netcdf(path, engine="h5netcdf"))

    def write_checkpoint(self, name: str, model: nn.Module) -> Path:
        from safetensors.torch import save_file

        state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
        return self._write(f"checkpoints/{name}.safetensors", lambda path: save_file(state, path))

    # -- its beginning and end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self._end("finished")
        elif issubclass(kind, KeyboardInterrupt):
            self._end("interrupted")
        else:
            self.record["error"] = f"{kind.__name__}: {error}"
            self._end("failed")

    def _end(self, status: str) -> None:
        self.record.update(status=status, end=_now())
        self._write_record()

    def _make_room(self, what: str) -> None:
        try:
            names = sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
        except NotADirectoryError as error:
            raise InputError(f"{self.path} is a file; choose another folder for the run") from error
        if not names:
            return
        former = _read_record(self.path / "run.json")
        if former is None or former.get("what") != what:
            raise InputError(
                f"{self.path} is not empty and holds no former run of {what} (but {', '.join(names[:3])}"
                f"{', ...' if len(names) > 3 else ''}); choose another folder"
            )
        if former.get("status") not in ENDED:
            raise InputError(
                f"{self.path} holds a run of {what} with status '{former.get('status')}': it is still going on, or was "
                "killed; choose another folder, or delete this one"
            )
        for name in former.get("hashes", {}):
            file = self.path / name
            if self.path.resolve() in file.resolve().parents:
                file.unlink(missing_ok=True)

    # -- files

    def _write(self, name: str, write: Callable[[Path], object]) -> Path:
        path = self.path / name
        write_whole(path, write)
        self.record["hashes"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
        self._write_record()
        return path

    def _write_record(self) -> None:
        text = as_json(self.record) + "\n"
        write_whole(self.path / "run.json", lambda path: path.write_text(text, encoding="utf-8"))


def as_json(content: Any) -> str:
    return json.dumps(plain(content), indent=2, allow_nan=False)


def plain(content: Any) -> Any:
    """As JSON takes it: tuples as lists, NumPy's and torch's numbers as Python's, what is not finite as null."""
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [plain(value) for value in content]
    if content is None or isinstance(content, (str, bool, int)):
        return content
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if hasattr(content, "tolist"):
        return plain(content.tolist())
    if isinstance(content, os.PathLike):
        return os.fspath(content)
    raise TypeError(f"{type(content).__name__} has no place in a JSON document")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """The whole file or none. The suffix stays: some writers choose their format by it."""
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --out folder") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _versions() -> dict[str, str]:
    package = __name__.partition(".")[0]
    versions = {name: str(importlib.import_module(name).__version__) for name in (package, *LIBRARIES)}
    return {**versions, "python": platform.python_version()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
