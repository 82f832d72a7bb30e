"""A run folder as it is read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from skipscope.errors import InputError
from skipscope.runs.datasets import read_dataset
from skipscope.runs.decisions import SCHEMA, Decision, Relation, Verdict
from skipscope.runs.files import digest
from skipscope.runs.record import NAME, inside, kind, read_json, read_record, require_schema

if TYPE_CHECKING:
    import xarray

CLAIMS = "claims.json"
TEXTS = ("id", "paper", "claim", "statistic", "expected", "preset", "reason", "study")  # of a claim


@dataclass(frozen=True)
class SavedRun:
    path: Path
    record: dict[str, Any]  # of run.json
    claims: tuple[Decision, ...]  # none where claims.json was changed
    names: tuple[str, ...]  # of its datasets
    changed: tuple[str, ...] = ()  # files whose content is not what the run wrote
    missing: tuple[str, ...] = ()  # files that the run wrote and that are gone
    sealed: bool = True  # run.json has a digest of itself

    def dataset(self, name: str) -> xarray.Dataset:
        if name not in self.names:
            raise InputError(f"{self.path} has no dataset '{name}'; it has {', '.join(self.names) or 'none'}")
        self.require(_file_of(name))
        return read_dataset(self.path / _file_of(name), self.record["hashes"][_file_of(name)])

    @property
    def withheld(self) -> tuple[str, ...]:
        """The changed files whose numbers nobody gets."""
        return tuple(name for name in self.changed if name in {CLAIMS, *map(_file_of, self.names)})

    @property
    def readable(self) -> tuple[str, ...]:
        """Names of the datasets that are as the run wrote them."""
        return tuple(name for name in self.names if _file_of(name) not in self.changed)

    @property
    def flaws(self) -> tuple[str, ...]:
        """What a reader must know of the folder, in sentences."""
        found = []
        if self.missing:
            found.append(f"Missing from the folder: {', '.join(self.missing)}.")
        if self.changed:
            found.append(f"Not as the run wrote them: {', '.join(self.changed)}.")
        if not self.sealed:
            found.append(f"An older version wrote {NAME}, without a digest: whether it was changed is not known.")
        if self.record["versions"].get("skipscope") == "0.1.0":
            found.append("Version 0.1.0 made it: its stages are counted from 0, the names of its units from stage1.")
        return tuple(found)

    def require(self, *names: str) -> None:
        """Refuse files that were changed: their numbers are not the run's."""
        changed = [name for name in self.changed if name in names]
        if changed:
            raise InputError(
                f"{self.path}: not as the run wrote them: {', '.join(changed)} (another SHA-256 than in {NAME}, or for "
                f"{NAME} than in itself); put back copies of them, or run the command again"
            )

    def require_all(self) -> None:
        """Refuse a folder in which the record, the claims or a dataset were changed."""
        self.require(NAME, *self.withheld)


def load_run(path: Path | str) -> SavedRun:
    path = Path(path)
    record, seal = read_record(path)
    hashes = record["hashes"]
    # In the order in which they were written.
    files = [name for name in hashes if inside(path, name) and (path / name).is_file()]
    names = [name for name in files if name.startswith("data/") and name.endswith(".nc")]
    changed = [name for name in files if digest(path / name) != hashes[name]]
    if seal != "missing" and (path / CLAIMS).is_file() and CLAIMS not in hashes:
        changed.append(CLAIMS)  # not the run's, or left by a kill before it was in the record
    if seal == "changed":
        changed.insert(0, NAME)
    claims = read_claims(path / CLAIMS)
    return SavedRun(
        path,
        record,
        () if CLAIMS in changed else claims,
        tuple(name.removeprefix("data/").removesuffix(".nc") for name in names),
        tuple(changed),
        tuple(name for name in hashes if name not in files),
        seal != "missing",
    )


def _file_of(name: str) -> str:
    return f"data/{name}.nc"


def read_claims(file: Path) -> tuple[Decision, ...]:
    """None where there is no such file; InputError where one of them is none."""
    content = read_json(file) if file.is_file() else []
    if not isinstance(content, list):
        raise InputError(f"{file} is not a list of claims, but {kind(content)}")
    return tuple(_claim(file, number, claim) for number, claim in enumerate(content, start=1))


def _claim(file: Path, number: int, content: Any) -> Decision:
    wrong = f"{file} is not a list of claims: number {number}"
    if not isinstance(content, dict):
        raise InputError(f"{wrong}: expected a mapping, got {kind(content)}")
    require_schema(file, content.get("schema", 1), SCHEMA)
    try:
        decision = Decision.from_dict(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{wrong} is no claim ({error!r})") from error
    for name in TEXTS:
        if not isinstance(getattr(decision, name), str):
            raise InputError(f"{wrong}: expected a text as its {name}, got {kind(content[name])}")
    if not isinstance(decision.measured, dict):
        raise InputError(f"{wrong}: expected a mapping of what was measured, got {kind(content['measured'])}")
    _require_verdict(wrong, decision.verdict)
    for part in (*decision.parts, *(part for subject in decision.subjects for part in subject.parts)):
        _require_verdict(wrong, part.verdict)
        for name in ("name", "subject", "reason"):
            if not isinstance(getattr(part, name), str):
                raise InputError(f"{wrong}: expected a text as the {name} of a part, got {kind(getattr(part, name))}")
    for outcome in (*decision.outcomes, *(outcome for part in decision.parts for outcome in part.outcomes)):
        if outcome.relation not in get_args(Relation) or outcome.passed not in (True, False, None):
            raise InputError(f"{wrong}: {outcome.quantity}: no outcome is {outcome.relation!r}, {outcome.passed!r}")
        if not isinstance(outcome.mean, (int, float, type(None))):
            raise InputError(f"{wrong}: {outcome.quantity}: expected a number as its mean, got {outcome.mean!r}")
    return decision


def _require_verdict(wrong: str, verdict: Any) -> None:
    if verdict not in get_args(Verdict):
        raise InputError(f"{wrong}: expected a verdict of {', '.join(get_args(Verdict))}, got {verdict!r}")
