"""`skipscope cache list | clean`: trained networks and downloaded data sets that are kept between runs.

Only what skipscope itself has put there is listed as its own and removed: networks under their keys, data sets with the
list of digests that a download leaves, and what a killed process left half done. Files that a user has put into the
folder of data sets are shown and never touched.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from skipscope.cli.options import Json, document
from skipscope.cli.talk import Quiet, Verbose, command, help_without_command, talk
from skipscope.errors import InputError
from skipscope.text_table import in_columns
from skipscope.wording import counted

NETWORK = re.compile(r"[0-9a-f]{64}\.safetensors")
HEADER = "skipscope"  # of the document in the file of a network
LARGEST_HEADER = 2**24  # bytes; a file that asks for more is none of ours
AGES = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}

cache = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@dataclass(frozen=True)
class Kept:
    """One thing in the cache."""

    kind: str  # network, data set, unfinished
    what: str
    path: Path
    size: int  # bytes
    age: float  # seconds since it was written
    ours: bool = True  # may be removed

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "what": self.what,
            "path": str(self.path),
            "bytes": self.size,
            "seconds_old": round(self.age),
            "removable": self.ours,
        }


@cache.callback()
def options(context: typer.Context, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Trained networks and data sets that are kept. List them, remove them.

    Example: skipscope cache list
    """
    talk.set(quiet, verbose)
    help_without_command(context)


@cache.command("list")
@command
def list_kept(as_json: Json = False) -> None:
    """What is kept, with its size and age, the largest first.

    Example: skipscope cache list
    """
    found = list(kept())
    if as_json:
        talk.result(document({**_places(), "kept": [one.to_dict() for one in found], "bytes": _total(found)}))
        return
    talk.result("\n".join([*_table(found), _sum(found)]))


@cache.command()
@command
def clean(
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="What was written longer ago than this: 12h, 30d, 8w.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that skipscope has put there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; needed where there is no terminal.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what is kept. Networks are then trained, and data sets fetched, when they are needed again.

    Example: skipscope cache clean --older-than 30d --dry-run
    """
    if (older_than is None) == (not everything):
        got = "none of them" if older_than is None else "both"
        raise InputError(f"cache clean: expected --older-than AGE or --all, got {got}; --dry-run shows what would go")
    limit = 0.0 if older_than is None else _seconds(older_than)
    chosen = [one for one in kept() if one.ours and one.age >= limit]
    if not dry_run and chosen and not yes:
        if as_json or not _can_ask():
            raise InputError(
                f"cache clean: {_sum(chosen)} would be removed, and nobody can be asked here; say --yes, or --dry-run "
                "to see the list"
            )
        if not talk.ask("\n".join(_table(chosen)), f"remove {_sum(chosen)}?"):
            talk.result("nothing was removed")
            return
    failed = {} if dry_run else {one.path: why for one in chosen if (why := _removed(one))}
    gone = [one for one in chosen if one.path not in failed]
    if as_json:
        listed = [one.to_dict() for one in gone]
        talk.result(document({**_places(), "dry_run": dry_run, "removed": listed, "bytes": _total(gone)}))
    elif dry_run and gone:
        talk.result("\n".join([*_table(gone), f"{_sum(gone)} would be removed"]))
    else:
        talk.result(f"removed {_sum(gone)}" if gone else "nothing to remove")
    if failed:
        path, why = next(iter(failed.items()))
        raise InputError(
            f"{counted(len(failed), 'file')} could not be removed, such as {path}: {why}; remove it by hand"
        )


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def kept() -> Iterator[Kept]:
    """The largest first."""
    now = time.time()
    places = _places()
    found = [*_networks(Path(places["networks"]), now), *_data_sets(Path(places["data"]), now)]
    yield from sorted(found, key=lambda one: -one.size)


def _networks(folder: Path, now: float) -> Iterator[Kept]:
    from skipscope.runs.whole_files import HALF_WRITTEN

    for path in _inside(folder):
        if NETWORK.fullmatch(path.name):
            yield Kept("network", _network(path), path, *_size_and_age(path, now))
        elif HALF_WRITTEN.fullmatch(path.name):
            yield Kept("unfinished", "left by a process that was killed", path, *_size_and_age(path, now))


def _data_sets(folder: Path, now: float) -> Iterator[Kept]:
    from skipscope.data.download import KNOWN, MANIFEST, UNFINISHED

    names = {place: name for name, (_, _, place) in KNOWN.items()}
    for path in _inside(folder):
        if not path.is_dir() or path.is_symlink():
            continue
        if path.name.startswith(UNFINISHED):
            yield Kept("unfinished", "a download that was killed", path, *_size_and_age(path, now))
        elif path.name in names:
            ours = (path / MANIFEST).is_file()
            what = names[path.name] + ("" if ours else " (not downloaded by skipscope, is not removed)")
            yield Kept("data set", what, path, *_size_and_age(path, now), ours)


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}") from error


def _size_and_age(path: Path, now: float) -> tuple[int, float]:
    """Of a folder all its files, and its own age: files keep the times that they had where they came from."""
    files = [path] if not path.is_dir() else [file for file in path.rglob("*") if not file.is_symlink()]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return size, max(0.0, now - path.lstat().st_mtime)


def _network(path: Path) -> str:
    """What the header of a file says that it holds; torch is not needed for it."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= LARGEST_HEADER else {}
        about = json.loads(header["__metadata__"][HEADER])
        return f"{about['network']} on {about['data']}, {100 * float(about['test_accuracy']):.1f} % of the test images"
    except (OSError, ValueError, KeyError, TypeError):
        return "unreadable; it would be trained again"


def _removed(one: Kept) -> str:
    """Why it could not be; nothing where it is gone."""
    try:
        if one.path.is_dir() and not one.path.is_symlink():
            shutil.rmtree(one.path)
        else:
            one.path.unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _table(found: Sequence[Kept]) -> list[str]:
    rows = [[_bytes(one.size), _age(one.age), one.kind, one.what, one.path.name] for one in found]
    rows = [[*row[:4], name if len(name) <= 24 else f"{name[:12]}..."] for *row, name in rows]
    return in_columns(rows, right=(0, 1), titles=["size", "age", "kind", "what", "file"]) if rows else []


def _sum(found: Sequence[Kept]) -> str:
    places = _places()
    if not found:
        return f"nothing is kept (networks in {places['networks']}, data sets in {places['data']})"
    return f"{counted(len(found), 'entry', 'entries')}, {_bytes(_total(found))}"


def _total(found: Sequence[Kept]) -> int:
    return sum(one.size for one in found)


def _places() -> dict[str, str]:
    from skipscope.data.download import root
    from skipscope.runs.files import cache_root

    return {"networks": str(cache_root() / "networks"), "data": str(root())}


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(int(seconds // size), unit)
    return "now"


def _seconds(age: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([hdw])\s*", age)
    if not found:
        raise InputError(f"--older-than {age}: expected an age such as 12h, 30d or 8w")
    return float(found.group(1)) * AGES[found.group(2)]
