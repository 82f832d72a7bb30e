"""Do two checkouts give the same results? Runs both, and compares what they write value by value.

    python scripts/same.py OLD NEW --keep               # results in --out of the same commits are reused
    python scripts/same.py OLD --keep                   # runs OLD alone, for later

OLD and NEW are git checkouts that hold the package `skipscope`; the Python that runs this script runs both. Do not edit
a checkout meanwhile. Each command is a process of its own with one thread, its own folder and its own cache of trained
networks; there is no data but the embedded digits.

    smoke     all studies of each paper at the preset `smoke`, one run folder per paper; it decides no claim
    quick     one study per paper at `quick`, by `skipscope study show` the cheapest that trains and decides a claim:
              A.theorem33 (1 minute), B.norms (1), C.linear (3) and D.perturbations (1 and its training)
    inspect   a residual network on digits and a small GPT-2, with a budget that is large enough for everything
    check     a network that is expected to train, one that is not (so that remedies are tried), and the small GPT-2

Exit code 1 if anything differs but for the changes that are declared below, each of which must be exactly as declared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy
import xarray

RESNET = "skipscope:resnet14-digits-n8 --data digits"
GPT2 = "hf:./tiny-gpt2 --input-shape 8"
TINY_GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 16, "vocab_size": 64}
QUICK = ("A.theorem33", "B.norms", "C.linear", "D.perturbations")
COMMANDS = {
    **{f"smoke-{paper}": f"study run {paper} --preset smoke --out run" for paper in "ABCD"},
    **{f"quick-{study}": f"study run {study} --preset quick --out run" for study in QUICK},
    "inspect-resnet14": f"inspect {RESNET} --samples 4 --calibrate --budget 5h --out run",
    "inspect-gpt2": f"inspect {GPT2} --samples 2 --budget 5h --out run",
    "check-resnet14": f"check {RESNET} --json",
    "check-plainnet110": "check skipscope:plainnet110-digits --data digits --json",
    "check-gpt2": f"check {GPT2} --json",
}
KINDS = ("smoke", "quick", "inspect", "check")
RUN = "import skipscope; skipscope.__version__ = '{version}'; from skipscope.cli import main; main()"

TEXT = "OUT"  # numpy's kinds of arrays that hold text
# What a record says of the time, the machine and the files, and not of the results.
IGNORED = ("start", "end", "hashes", "versions", "resumed", "sha256_of_this_file")


# ---- declared changes: NEW must be exactly what these make of OLD


def stage_plus_one(names: Any) -> Any:
    """`stage 0` becomes `stage 1`; other names stay, among them those of units such as `stage1.0`."""
    return in_text(names, lambda name: re.sub(r"^stage (\d+)$", lambda found: f"stage {int(found[1]) + 1}", name))


def without_options(notes: Any) -> Any:
    old = "inspect --calibrate, or calibrate=True of ss.trace and ss.inspect, takes"
    return in_text(notes, lambda text: text.replace(old, "calibrate=True of ss.trace and ss.inspect takes"))


def in_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same with every text changed; values that are no text stay as they are."""
    if isinstance(value, numpy.ndarray) and value.dtype.kind in TEXT:
        return numpy.array([change(text) for text in value.ravel()], dtype=object).reshape(value.shape)
    return change(value) if isinstance(value, str) else value


# A pattern of places such as `data/spectra.nc | stage | values`, what NEW has in place of OLD's value, and the reason.
COUNTED = "stage numbers in datasets count from 1 instead of 0, as in the names of units"
CHANGES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("data/*.nc | *stage | values", lambda numbers: numbers + 1, COUNTED),  # stage, state_stage and step_stage
    ("output.json | units | coords | stage | data | *", lambda number: number + 1, COUNTED),  # the dataset of `check`
    ("data/*.nc | unit | values", stage_plus_one, COUNTED),
    ("run.json | parameters | trunk | units | * | stage", lambda number: number + 1, COUNTED),
    ("run.json | parameters | trunk | stages | * | index", lambda number: number + 1, COUNTED),
    ("data/*.nc | attribute | notes", without_options, "the library does not speak of options of the command line"),
]

# Old names (of files such as data/law.nc, variables, attributes, quantities, ...) and old texts, each with its new one;
# replaced where it is the whole name or the whole text.
RENAMED: dict[str, str] = {}

# Old places, as regular expressions, each with its new one.
MOVED = {
    r"(run\.json \| parameters \| C\.\w+ \| )besides": r"\1other_networks",
    r"(run\.json \| parameters \| B\.learning \| )besides": r"\1other_depths",
    r"(data/learning-.*\.nc \| attribute \| )besides": r"\1also_reported",
    r"(run\.json \| parameters \| trunk \| stages \| \d+ \| )index": r"\1number",
}


def is_study(value: Any, what: str) -> bool:
    """Studies such as `D.law` or `D.spectra, D.proportions`, one of them of the run, `study D` or `study D.law`."""
    studies = str(value).split(", ")
    named = all(re.fullmatch(r"[A-Z]\.\w+", study) for study in studies)
    return named and any(what in (f"study {study}", f"study {study[0]}") for study in studies)


# Places that NEW alone has, and whether a value there is as declared, in a run of `study D` or such; every dataset of a
# study must have its attribute.
ADDED: dict[str, Callable[[Any, str], bool]] = {
    "data/*.nc | attribute | study": is_study,
    "claims.json | * | study": is_study,
    # Whether a network differs in one thing from others, which the report read from the names of datasets before.
    "data/emergence-*.nc | attribute | changed": lambda value, what: what.startswith("study A") and value in (0, 1),
}


# ---- running


def results_of(checkout: Path, side: str, out: Path, parts: list[str], keep: bool, version: str) -> Path:
    """The folder with the results of a checkout, one folder per part; parts that are there are kept on request.

    version: that the package is to have, since it is part of the names of trained networks and of their datasets.
    """
    state = state_of(checkout)
    folder = out / f"{side}-{state}"
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for part in parts:
        work = folder / part
        done = json.loads((work / "done.json").read_text()) if (work / "done.json").exists() else {}
        usable = done.get("command") == COMMANDS[part] and done["exit code"] == 0
        if keep and usable and not state.endswith("changed"):
            print(f"{side} {part}: kept", flush=True)
            continue
        shutil.rmtree(work, ignore_errors=True)
        (work / "tiny-gpt2").mkdir(parents=True)
        (work / "tiny-gpt2" / "config.json").write_text(json.dumps(TINY_GPT2))
        folders = {"SKIPSCOPE_CACHE": str(work / "cache"), "SKIPSCOPE_DATA": str(work / "no-data")}
        own = {**environment, **folders, "SKIPSCOPE_OFFLINE": "1"}
        require_package(checkout, work, own)
        start = time.monotonic()
        command = [sys.executable, "-c", RUN.format(version=version), *COMMANDS[part].split()]
        with (work / "output.txt").open("w") as output, (work / "errors.txt").open("w") as errors:
            code = subprocess.run(command, cwd=work, env=own, stdout=output, stderr=errors).returncode
        done = {"command": COMMANDS[part], "exit code": code, "seconds": round(time.monotonic() - start)}
        print(f"{side} {part}: exit code {code}, {done['seconds']} s", flush=True)
        if code and side == "old":
            raise SystemExit(f"there is nothing to compare with; {work}/errors.txt says why")
        if state_of(checkout) != state:
            raise SystemExit(f"{checkout} was changed while it ran; compare a clone of it that nobody edits")
        shutil.rmtree(work / "cache", ignore_errors=True)
        (work / "done.json").write_text(json.dumps(done))
    return folder


def version_of(checkout: Path) -> str:
    command = [sys.executable, "-c", "import skipscope; print(skipscope.__version__)"]
    return subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(checkout)}, cwd="/", text=True).strip()


def state_of(checkout: Path) -> str:
    """The commit, and whether the package has changes that are not in it."""
    git = ["git", "-C", str(checkout)]
    commit = subprocess.check_output([*git, "rev-parse", "--short=12", "HEAD"], text=True).strip()
    changed = subprocess.check_output([*git, "status", "--porcelain", "--", "skipscope"], text=True)
    return f"{commit}-changed" if changed else commit


def require_package(checkout: Path, work: Path, environment: dict[str, str]) -> None:
    """Fails unless a command in this folder runs the package of this checkout."""
    command = [sys.executable, "-c", "import skipscope; print(skipscope.__file__)"]
    found = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=True)
    if Path(found.stdout.strip()) != checkout / "skipscope" / "__init__.py":
        raise SystemExit(f"expected the package of {checkout}, got {found.stdout.strip()}")


# ---- comparing


def content_of(folder: Path) -> dict[str, Any]:
    """All results in the folder of a part by their place: arrays of datasets, and single values of everything else."""
    done = json.loads((folder / "done.json").read_text())
    found: dict[str, Any] = {"command | exit code": done["exit code"]}
    for file in sorted((folder / "run" / "data").glob("*.nc")):
        # Without decoding missing values, so that what is compared is what is in the file.
        data = xarray.load_dataset(file, engine="h5netcdf", mask_and_scale=False, decode_times=False)
        place = f"data/{file.name}"
        found |= leaves(f"{place} | sizes", dict(data.sizes))
        found |= leaves(f"{place} | attribute", data.attrs)
        for name, variable in data.variables.items():
            dtype = "text" if variable.dtype.kind in TEXT else str(variable.dtype)
            about = {"kind": "coordinate" if name in data.coords else "variable", "dtype": dtype}
            found |= leaves(f"{place} | {name}", about | {"dims": list(variable.dims), "attribute": variable.attrs})
            found[f"{place} | {name} | values"] = variable.values
    for file in [file for name in ("run.json", "claims.json") if (file := folder / "run" / name).exists()]:
        content = json.loads(file.read_text())
        if isinstance(content, list):
            content = {claim["id"]: claim for claim in content}
        found |= leaves(file.name, {name: value for name, value in content.items() if name not in IGNORED})
    if done["command"].endswith("--json"):
        found |= leaves("output.json", json.loads((folder / "output.txt").read_text() or "{}"))
    return found


def leaves(place: str, value: Any) -> dict[str, Any]:
    """The single values of nested mappings and lists; an empty one counts as a value."""
    inner = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
    if not inner:
        return {place: value}
    return {key: leaf for name, item in inner.items() for key, leaf in leaves(f"{place} | {name}", item).items()}


@dataclass
class Row:
    """Of one file: how many values were compared, how many have a declared change, and what differs."""

    values: int = 0
    declared: int = 0
    differences: list[str] = field(default_factory=list)
    absolute: float = 0.0  # the largest difference
    relative: float = 0.0


def compare(old: dict[str, Any], new: dict[str, Any], exact: bool = False) -> dict[str, Row]:
    """By file. exact: without declared changes, for two runs of the same code."""
    rows: dict[str, Row] = {}
    new = dict(new)
    what = str(new.get("run.json | what", ""))
    for place, value in old.items():
        place, expected, declared = (place, value, False) if exact else as_declared(place, value)
        row = rows.setdefault(place.split(" | ")[0], Row())
        row.values += numpy.size(value)
        row.declared += numpy.size(value) if declared else 0
        if place not in new:
            row.differences.append(f"{place}: missing in NEW")
        else:
            compare_values(row, f"{place} (a declared change)" if declared else place, expected, new.pop(place))
    if what.startswith("study ") and not exact:
        for file in [file for file in rows if file.startswith("data/")]:
            if f"{file} | attribute | study" not in new:
                rows[file].differences.append(f"{file} | attribute | study (a declared change): missing in NEW")
    for place, value in new.items():
        row = rows.setdefault(place.split(" | ")[0], Row())
        if not exact and any(fnmatchcase(place, pattern) and holds(value, what) for pattern, holds in ADDED.items()):
            row.declared += 1
        else:
            row.differences.append(f"{place}: only in NEW: {shorten(str(value), 100)}")
    return rows


def as_declared(place: str, value: Any) -> tuple[str, Any, bool]:
    """Where NEW must have which value, and whether that is a declared change."""
    new = in_text(value, lambda text: RENAMED.get(text, text))
    for pattern, change, _ in CHANGES:
        if fnmatchcase(place, pattern):
            new = change(new)
    renamed = " | ".join(RENAMED.get(name, name) for name in place.split(" | "))
    for old, moved in MOVED.items():
        renamed = re.sub(old, moved, renamed)
    return renamed, new, renamed != place or not is_same(value, new)


def is_same(old: Any, new: Any) -> bool:
    """Of one type, and to the last bit."""
    if not isinstance(old, numpy.ndarray | numpy.generic | float):
        return type(old) is type(new) and bool(old == new)
    old, new = numpy.asarray(old), numpy.asarray(new)
    if old.dtype.kind in TEXT:
        return bool(numpy.array_equal(old, new))
    return bool(old.shape == new.shape and old.dtype == new.dtype and old.tobytes() == new.tobytes())


def compare_values(row: Row, place: str, expected: Any, got: Any) -> None:
    if is_same(expected, got):
        return
    text = f"{place}: expected {shorten(str(expected), 100)}, got {shorten(str(got), 100)}"
    before, after = numpy.asarray(expected), numpy.asarray(got)
    if before.shape == after.shape and {before.dtype.kind, after.dtype.kind} <= set("biuf"):
        differs = ~numpy.isclose(before, after, rtol=0, atol=0, equal_nan=True)
        with numpy.errstate(all="ignore"):
            apart = numpy.abs(after.astype(float) - before.astype(float))
            sizes = numpy.where(differs, [apart, apart / numpy.abs(before)], 0.0)
        sizes = numpy.where(numpy.isnan(sizes), numpy.inf, sizes)  # a number in place of NaN, or the other way round
        absolute, relative = (float(size.max(initial=0.0)) for size in sizes)
        row.absolute, row.relative = max(row.absolute, absolute), max(row.relative, relative)
        text += f" ({differs.sum()} of {before.size} differ, by up to {absolute:.3g}, relative {relative:.3g})"
    row.differences.append(text)


def table(rows: dict[str, Row], shown: int = 8) -> str:
    """One line per file, and below it its first differences."""
    lines = [f"{'what':80} {'values':>9} {'declared':>9}  outcome"]
    for what, row in rows.items():
        count = len(row.differences)
        outcome = f"DIFFERS in {count} places, by up to {row.absolute:.3g}, relative {row.relative:.3g}"
        lines.append(f"{what:80} {row.values:9} {row.declared:9}  {outcome if count else 'equal'}")
        lines += [f"    {text}" for text in row.differences[:shown]]
        lines += [f"    ... and {count - shown} more"] * (count > shown)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", help="without it OLD alone is run")
    parser.add_argument("--out", type=Path, default=Path("build/same"), help="where results go (default: build/same)")
    parser.add_argument("--only", default=",".join(KINDS), help=f"some of {','.join(KINDS)}")
    parser.add_argument("--keep", action="store_true", help="reuse results in --out of the same commit")
    parser.add_argument("--exact", action="store_true", help="without the declared changes, for the same code twice")
    options = parser.parse_args()
    kinds = options.only.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--only: expected some of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}")
    parts = [part for part in COMMANDS if part.split("-")[0] in kinds]
    version = version_of(options.old.resolve())
    old = results_of(options.old.resolve(), "old", options.out.resolve(), parts, options.keep, version)
    if options.new is None:
        return
    new = results_of(options.new.resolve(), "new", options.out.resolve(), parts, options.keep, version)
    rows: dict[str, Row] = {}
    for part in parts:
        found = compare(content_of(old / part), content_of(new / part), options.exact)
        rows |= {f"{part} {file}": row for file, row in found.items()}
    print("declared changes:", "none" if options.exact else {reason for *_, reason in CHANGES} | set(ADDED))
    print(table(rows))
    different = [what for what, row in rows.items() if row.differences]
    print(f"{len(rows)} lines, {sum(row.values for row in rows.values())} values; {len(different)} lines differ")
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
