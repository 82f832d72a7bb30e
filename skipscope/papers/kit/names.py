"""Names of studies as a user writes them. No study is loaded for it: a slip is found before torch is imported."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from skipscope.errors import InputError
from skipscope.registration import papers

OURS = f"{__name__.rpartition('.kit')[0]}."  # how the packages of our papers begin
PRESETS = {
    "smoke": "seconds, for tests; decides nothing",
    "quick": "minutes on 2 cores",
    "full": "one GPU, each command under 10 minutes",
    "paper": "the paper's own scale",
}


def ids() -> dict[str, str]:
    """Of all studies, with their titles."""
    return {f"{paper.letter}.{name}": title for paper in papers() for name, title in paper.studies.items()}


def require_known(names: str) -> None:
    """Refuse names that no study and no paper has."""
    for name in split(names):
        ids_named(name)


def split(names: str) -> list[str]:
    found = [name.strip() for name in names.split(",")]
    if len(found) > 1 and not all(found):
        raise InputError(f"studies '{names}': expected names with commas between them, got an empty one")
    return found


def ids_named(name: str) -> list[str]:
    """The ids that a name means."""
    known, letters = ids(), [paper.letter for paper in papers()]
    if not known:
        raise InputError("no paper is installed, so that there is no study to run")
    if name.upper() in letters:
        return [id for id in known if id.startswith(f"{name.upper()}.")]
    for id in known:
        if id.lower() == name.lower():
            return [id]
    close = difflib.get_close_matches(name, [*known, *letters], n=1)
    hint = f"did you mean {close[0]}? There" if close else "there"
    raise InputError(f"no study '{name}'; {hint} are {', '.join(known)}, and a paper's letter runs all of its studies")


def require_possible_settings(names: str, keys: Iterable[str]) -> None:
    """Refuse keys that no study of these papers has, by the text of their modules: importing them takes seconds.

    A key of another study of the paper passes, and is refused when the studies are there; so do all keys of a paper
    that is not one of ours, whose settings may be defined anywhere.
    """
    letters = {id.partition(".")[0] for name in split(names) for id in ids_named(name)}
    packages = [paper.package for paper in papers() if paper.letter in letters]
    if not all(package.startswith(OURS) for package in packages):
        return
    possible = {name for package in packages for name in _settings_in(package)}
    for key in keys:
        last = key.rpartition(".")[2]
        if last not in possible:
            close = difflib.get_close_matches(last, possible, n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise InputError(
                f"no setting '{key}' in {names}{meant}; skipscope study show {split(names)[0]} lists the settings"
            )


def _settings_in(package: str) -> Iterator[str]:
    """Names of annotated fields, and old names, of all classes of settings in the files of a package."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in Path(folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name.endswith("Settings"):
                    yield from _fields(node)


def _fields(settings: ast.ClassDef) -> Iterator[str]:
    for line in settings.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id
            if line.target.id == "OLD_NAMES" and line.value is not None:
                yield from (str(key) for key in ast.literal_eval(line.value))
