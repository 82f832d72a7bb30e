"""A sweep: pieces of work of one kind, each of which is a dataset of the run, made once and found again.

A task says what its dataset is called, what determines it, and how it is computed. Where the name alone does not tell
two tasks of a run apart, a part of the hash of everything that determines them belongs to the name, so that studies of
one run share what they have in common and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipscope.runs.files import key_of

if TYPE_CHECKING:
    import xarray

SHOWN_OF_KEY = 8  # digits of the hash in the name of a dataset


def keyed(name: str, determined_by: Mapping[str, Any]) -> str:
    """A dataset's name with a part of the hash of all that determines it."""
    return f"{name}-{key_of(determined_by)[:SHOWN_OF_KEY]}"


@dataclass(frozen=True)
class Task:
    name: str  # of its dataset
    compute: Callable[[], xarray.Dataset]


def swept(
    tasks: Iterable[Task],
    part: Callable[[str, Callable[[], xarray.Dataset]], xarray.Dataset],
    progress: Callable[[int, int], None] | None = None,
) -> list[xarray.Dataset]:
    """The datasets of all tasks, in their order. part: as that of a run folder, which finds what is there already.

    Tasks may come one after another, so that each can hold something large while it is computed; progress is
    called where their number is known.
    """
    total = len(tasks) if isinstance(tasks, Sequence) else None
    found = []
    for done, task in enumerate(tasks):
        if progress is not None and total is not None:
            progress(done, total)
        found.append(part(task.name, task.compute))
    if progress is not None and total is not None:
        progress(total, total)
    return found


def merged(pieces: Sequence[xarray.Dataset], along: str, **attributes: Any) -> xarray.Dataset:
    """Pieces one after another along a dimension, with the attributes of the first and those that are given.

    The mark of a piece, its attribute `part`, does not belong to the whole.
    """
    import xarray

    about = {key: value for key, value in pieces[0].attrs.items() if key != "part"}
    return xarray.concat(pieces, along, combine_attrs="drop").assign_attrs({**about, **attributes})
