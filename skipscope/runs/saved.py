"""A run folder as it is read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from skipscope.errors import InputError
from skipscope.runs.claims import Decision, Verdict
from skipscope.runs.criteria import Relation
from skipscope.runs.files import digest, read_dataset
from skipscope.runs.record import inside, kind, read_json, read_record

if TYPE_CHECKING:
    import xarray

TEXTS = ("id", "paper", "claim", "statistic", "expected", "preset", "reason")  # of a claim


@dataclass(frozen=True)
class SavedRun:
    path: Path
    record: dict[str, Any]  # of run.json
    claims: tuple[Decision, ...]
    names: tuple[str, ...]  # of its datasets
    changed: tuple[str, ...] = ()  # files whose content is not what the run wrote
    missing: tuple[str, ...] = ()  # files that the run wrote and that are gone

    def dataset(self, name: str) -> xarray.Dataset:
        if name not in self.names:
            raise InputError(f"{self.path} has no dataset '{name}'; it has {', '.join(self.names) or 'none'}")
        return read_dataset(self.path / f"data/{name}.nc")


def load_run(path: Path | str) -> SavedRun:
    path = Path(path)
    record = read_record(path)
    # In the order in which they were written.
    files = [name for name in record["hashes"] if inside(path, name) and (path / name).is_file()]
    names = [name for name in files if name.startswith("data/") and name.endswith(".nc")]
    return SavedRun(
        path,
        record,
        _claims(path / "claims.json"),
        tuple(name.removeprefix("data/").removesuffix(".nc") for name in names),
        tuple(name for name in files if digest(path / name) != record["hashes"][name]),
        tuple(name for name in record["hashes"] if name not in files),
    )


def _claims(file: Path) -> tuple[Decision, ...]:
    content = read_json(file) if file.is_file() else []
    if not isinstance(content, list):
        raise InputError(f"{file} is not a list of claims, but {kind(content)}")
    return tuple(_claim(file, number, claim) for number, claim in enumerate(content, start=1))


def _claim(file: Path, number: int, content: Any) -> Decision:
    wrong = f"{file} is not a list of claims: number {number}"
    if not isinstance(content, dict):
        raise InputError(f"{wrong}: expected a mapping, got {kind(content)}")
    try:
        decision = Decision.from_dict(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{wrong} is no claim ({error!r})") from error
    for name in TEXTS:
        if not isinstance(getattr(decision, name), str):
            raise InputError(f"{wrong}: expected a text as its {name}, got {kind(content[name])}")
    if not isinstance(decision.measured, dict):
        raise InputError(f"{wrong}: expected a mapping of what was measured, got {kind(content['measured'])}")
    if decision.verdict not in get_args(Verdict):
        raise InputError(f"{wrong}: expected a verdict of {', '.join(get_args(Verdict))}, got {content['verdict']!r}")
    for outcome in decision.outcomes:
        if outcome.relation not in get_args(Relation) or outcome.passed not in (True, False, None):
            raise InputError(f"{wrong}: {outcome.quantity}: no outcome is {outcome.relation!r}, {outcome.passed!r}")
    return decision
