"""Names of studies as a user writes them. No study is loaded for it: a slip is found before torch is imported."""

from __future__ import annotations

import difflib

from skipscope.errors import InputError
from skipscope.registration import papers

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
