"""A run folder as it is read again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.runs.claims import Decision
from skipscope.runs.files import read_dataset

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class SavedRun:
    path: Path
    record: dict[str, Any]  # of run.json
    claims: tuple[Decision, ...]
    names: tuple[str, ...]  # of its datasets

    def dataset(self, name: str) -> xarray.Dataset:
        if name not in self.names:
            raise InputError(f"{self.path} has no dataset '{name}'; it has {', '.join(self.names) or 'none'}")
        return read_dataset(self.path / f"data/{name}.nc")


def load_run(path: Path | str) -> SavedRun:
    path = Path(path)
    record = _json(path / "run.json", path)
    claims = _json(path / "claims.json", path) if (path / "claims.json").is_file() else []
    try:
        decisions = tuple(Decision.from_dict(claim) for claim in claims)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path / 'claims.json'} is not a list of claims ({error!r})") from error
    # In the order in which they were written.
    names = [name for name in record.get("hashes", {}) if name.startswith("data/") and name.endswith(".nc")]
    found = tuple(name.removeprefix("data/").removesuffix(".nc") for name in names if (path / name).is_file())
    return SavedRun(path, record, decisions, found)


def _json(file: Path, folder: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{folder} is no run folder: it has no {file.name}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
