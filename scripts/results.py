"""Results of runs for the documentation: verdicts, numbers and pictures, from run folders alone.

    python scripts/results.py docs/results/D RUN... --machine "one NVIDIA H200"

Writes claims.json (the claims of all runs, with the run that each is from) and README.md (verdicts and pictures of each
run, the settings of all at the end) into the folder, the tables of the report that --tables chooses by the beginning of
their titles, and one PNG a figure that --figures chooses by the end of its name (they need the extra `export`); what
several runs have is there once. With --datasets the measured datasets come along, in a folder data/, so that a later
edition of the rules can judge them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skipscope.inspection import Result, load
from skipscope.report.figures import save
from skipscope.report.table import Table
from skipscope.runs import SavedRun, as_json, load_run
from skipscope.runs.datasets import dataset_bytes, read_dataset
from skipscope.runs.decisions import in_words
from skipscope.runs.whole_files import write_whole

WIDTH, SCALE = 1100, 1
WORTH_COMPRESSING = 2**14  # bytes of an array: compressed ones are kept in blocks, with a directory of their own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--figures", nargs="*", default=[])
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--datasets", action="store_true")
    parser.add_argument("--title", default="Results")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {options.title}", "", f"{options.machine}. Made by `scripts/results.py` from run folders.", ""]
    claims: list[dict[str, Any]] = []
    drawn: set[str] = set()
    made: list[str] = ["## How it was made", ""]
    for path in options.runs:
        saved, result = load_run(path), load(path)
        claims += [{**decision.to_dict(), "run": path.name} for decision in saved.claims]
        lines += verdicts(saved)
        made += how_made(saved)
        if options.datasets:
            compress(path / "data", options.folder / "data")
        for table in result.tables:
            if table.title.startswith(tuple(options.tables)) and str(table) not in drawn:
                drawn.add(str(table))
                lines += in_markdown(table)
        for name in pictures(result, options.figures, options.folder, path.name, drawn):
            lines += [f"![{name}]({name})", ""]
    (options.folder / "claims.json").write_text(as_json(claims) + "\n")
    (options.folder / "README.md").write_text("\n".join([*lines, *made]).rstrip() + "\n")


def compress(source: Path, folder: Path) -> None:
    """All datasets of a run, their numbers as they are."""
    folder.mkdir(exist_ok=True)
    for file in sorted(source.glob("*.nc")):
        dataset = read_dataset(file)
        for values in dataset.variables.values():
            values.encoding = {"zlib": True, "complevel": 9, "shuffle": True} if _compressible(values) else {}
        write_whole(folder / file.name, dataset_bytes(dataset))


def _compressible(values: Any) -> bool:
    return values.dtype.kind in "fiub" and values.nbytes > WORTH_COMPRESSING


def how_made(saved: SavedRun) -> list[str]:
    record = saved.record
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    when = f"{record['status']}; {record['start']} to {record['end']}"
    if record["end"] is None:
        when = f"begun {record['start']} and not finished: it has these datasets, and no verdicts"
    lines = [f"**{record['what']}**: {when}; device {record['device']}; {versions}. Settings:", "", "```json"]
    return [*lines, json.dumps(record["parameters"], indent=1), "```", ""]


def verdicts(saved: SavedRun) -> list[str]:
    record = saved.record
    lines = [f"## {record['what']}, preset {record['preset']}", ""]
    lines += ["| claim | verdict | expected | measured |", "|---|---|---|---|"] if saved.claims else []
    for decision in saved.claims:
        because = f" ({decision.reason})" if decision.reason else ""
        parts = [f"{part.name}: {part.verdict}" for part in decision.parts] if len(decision.parts) > 1 else []
        verdict = "<br>".join([f"**{decision.verdict}**{because}", *parts])
        cells = (f"{decision.id}: {decision.claim}", verdict, decision.expected)
        escaped = [cell.replace("|", "\\|") for cell in (*cells, in_words(decision.measured))]
        lines.append(f"| {' | '.join(escaped)} |")
    notes = [f"- {note}" for note in record.get("notes", [])]
    between = [""] if notes and saved.claims else []
    return [*lines, *between, *notes, ""]


def in_markdown(table: Table) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    return [f"{table.title}:", "", row(table.columns), row(["---"] * len(table.columns)), *map(row, table.rows), ""]


def pictures(result: Result, ends: list[str], folder: Path, run: str, drawn: set[str]) -> list[str]:
    """Names of the files that were written. drawn: what earlier runs had; this run's figures join it."""
    written = []
    for name, figure in result.figures.items():
        content = figure.to_json()
        if any(name.endswith(end) for end in ends) and content not in drawn:
            drawn.add(content)
            file = f"{run}-{name}.png"
            save(figure, folder / file, width=WIDTH, scale=SCALE)
            written.append(file)
    return written


if __name__ == "__main__":
    main()
