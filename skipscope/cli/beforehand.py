"""What can be wrong with a command's arguments, found before torch is loaded: a mistake is reported in a fraction of a
second.

The same checks are made where the arguments are used; what only torch can tell (whether a device is there, whether
a library knows a name) is still found there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from skipscope.data.specs import NORMALISATIONS, parse, require_path, written_constants
from skipscope.errors import InputError
from skipscope.models.request import there

# Kinds of devices that torch knows and a model can be on; "npu" and "privateuseone" are those of vendors' plugins.
KINDS = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "xla", "npu", "privateuseone")


def require_device(name: str) -> None:
    kind, colon, number = name.partition(":")
    reason = ""
    if kind == "meta":
        reason = "it holds no values"
    elif kind not in KINDS:
        reason = "there is no such kind of device"
    elif colon and not number.isdecimal():
        reason = f"expected a number after '{kind}:'"
    if reason:
        raise InputError(f"--device {name} cannot be used here ({reason}); use cpu, cuda, cuda:1 or mps")


def require_data(data: str | None, normalise: str = "default") -> None:
    if normalise not in NORMALISATIONS:
        written_constants(normalise)
    if data is None:
        if normalise != "default":
            raise InputError(f"--normalise {normalise} is for the images of --data; give both or none")
        return
    wanted = parse(data)
    if wanted.path is not None:
        require_path(wanted.name, wanted.path)


def require_folder(out: Path | None) -> None:
    """Refuse a folder that cannot be made: it, or what should hold it, is a file or may not be written to."""
    if out is None:
        return
    try:
        place = next(place for place in (out, *out.absolute().parents) if place.exists())
    except (OSError, ValueError) as error:
        raise InputError(f"--out: no file system takes '{out}' as a name; choose another folder") from error
    if not place.is_dir():
        raise InputError(f"--out {out}: cannot write there, {place} is a file; choose another folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: cannot write to {place}; choose another folder")


def require_former(out: Path | None, resume: bool, force: bool) -> None:
    """For options that are about a run that is there."""
    if resume and force:
        raise InputError("--resume and --force exclude each other: go on with the run, or replace it")
    if out is None and (resume or force):
        option = "--resume" if resume else "--force"
        raise InputError(f"{option}: expected the folder of the run too, got none; name it with --out DIR")


def require_run_folder(out: Path | None, what: str, resume: bool | None = None, force: bool | None = None) -> None:
    """For a run of `what`: nothing may be there, or a former run of the same kind where that is wanted.

    resume, force: whether it is, to go on with it or to replace it; None where the command cannot do that.
    """
    from skipscope.runs.lock import Lock
    from skipscope.runs.record import NAME, left_nothing, read_record
    from skipscope.runs.whole_files import HALF_WRITTEN

    require_folder(out)
    found = sorted(place.name for place in out.iterdir()) if out is not None and out.is_dir() else []
    found = [name for name in found if name != Lock.NAME and not HALF_WRITTEN.fullmatch(name)]
    if found and NAME not in found:
        shown = f"{', '.join(found[:3])}{', ...' if len(found) > 3 else ''}"
        raise InputError(f"--out {out}: it is not empty and holds no run (but {shown}); choose another folder")
    if found and out is not None:
        record, _ = read_record(out)
        if record["what"] != what:
            raise InputError(f"--out {out}: it holds a run of {record['what']}, not of {what}; choose another folder")
        if not resume and not force and not left_nothing(out, record):
            ways = [
                way
                for way, possible in (("--resume goes on with it", resume), ("--force replaces it", force))
                if possible is not None
            ]
            more = f" ({', '.join(ways)})" if ways else ""
            raise InputError(
                f"--out {out}: it holds a run of {what} with status '{record['status']}'{more}; choose another folder"
            )


def require_file_place(out: Path | None) -> None:
    """For a file that is written."""
    if out is None:
        return
    if there(out.is_dir):
        raise InputError(f"--out {out}: expected a file to write, and this is a folder; name a file in it")
    require_folder(out.parent)


def require_runs(runs: Iterable[Path], *, readable: bool = True) -> None:
    """readable: their records are whole; otherwise it is enough that there are some."""
    from skipscope.runs.record import NAME, read_record

    for run in runs:
        for command in ("check", "units"):
            if there((run / f"{command}.json").is_file) and not there((run / NAME).exists):
                raise InputError(
                    f"{run} holds {command}.json, which `skipscope {command}` wrote, without a report; `skipscope "
                    "inspect` and `skipscope study run` write run folders with one"
                )
        if readable or not there((run / NAME).exists):
            read_record(run)
