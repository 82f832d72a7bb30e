"""A trunk as text, as HTML and as plain data."""

from __future__ import annotations

import html
from collections import Counter
from typing import TYPE_CHECKING, Any

from skipscope.text_table import in_columns

if TYPE_CHECKING:
    from skipscope.trace.trunk import Trunk, Unit

COLUMNS = ("#", "unit", "skip", "tail", "stage", "state", "weights", "context", "also gives")
NUMERIC = {"#", "stage", "weights"}
KINDS_NOT_LISTED = ("pointwise",)  # left out without a line of their own: activations and norms


def as_dict(trunk: Trunk) -> dict[str, Any]:
    return {
        "model": type(trunk.model).__name__,
        "mode": "eval",
        "units": [unit.to_dict() for unit in trunk.units],
        "stages": [
            {"number": stage.number, "units": [unit.name for unit in stage.units], "shape": list(stage.exit_shape)}
            for stage in trunk.stages
        ],
        "segments": [{"kind": segment.kind, "name": segment.name} for segment in trunk.segments],
        "left_out": [{"kind": left.kind, "where": left.where, "reason": left.reason} for left in trunk.left_out],
        "replay_error": trunk.replay_error,
        "notes": list(trunk.notes),
    }


def as_text(trunk: Trunk) -> str:
    lines = [headline(trunk)]
    if trunk.units:
        rows = [_row(unit) for unit in trunk.units]
        used = [i for i, _ in enumerate(COLUMNS) if any(row[i] for row in rows)]
        numbers = [place for place, i in enumerate(used) if COLUMNS[i] in NUMERIC]
        lines += in_columns([[row[i] for i in used] for row in rows], right=numbers, titles=[COLUMNS[i] for i in used])
    lines += [f"left out: {line}" for line in left_out_lines(trunk)]
    lines += [f"note: {note}" for note in trunk.notes]
    return "\n".join(lines)


def as_html(trunk: Trunk) -> str:
    cells = "".join(f"<th>{html.escape(column)}</th>" for column in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _row(unit)) + "</tr>" for unit in trunk.units
    )
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>" if trunk.units else ""
    below = [f"left out: {line}" for line in left_out_lines(trunk)] + [f"note: {note}" for note in trunk.notes]
    items = "".join(f"<li>{html.escape(line)}</li>" for line in below)
    return f"<p>{html.escape(headline(trunk))}</p>{table}" + (f"<ul>{items}</ul>" if items else "")


def headline(trunk: Trunk) -> str:
    name = type(trunk.model).__name__
    if not trunk.units:
        sums = [left for left in trunk.left_out if left.kind not in (*KINDS_NOT_LISTED, "concatenation")]
        why = "no sum in it adds a skip to a branch" if sums else "it has no sum of two paths from one state"
        return f"{name}: 0 residual units; {why}"
    stages = len(trunk.stages)
    error = "; replay not checked"
    if trunk.replay_error is not None:
        error = f"; replaying them gives its output to {trunk.replay_error:.1e}"
    return f"{name}: {_plural(len(trunk.units), 'residual unit')} in {_plural(stages, 'stage')}{error}"


def left_out_lines(trunk: Trunk) -> list[str]:
    """One line for each kind and reason, with the first places."""
    groups: dict[tuple[str, str], list[str]] = {}
    for left in trunk.left_out:
        if left.kind not in KINDS_NOT_LISTED:
            groups.setdefault((left.kind, left.reason), []).append(left.where or "the model itself")
    lines = []
    for (kind, reason), places in groups.items():
        counts = Counter(places)
        shown = ", ".join(f"{place} ({n} times)" if n > 1 else place for place, n in list(counts.items())[:3])
        more = f" and {len(counts) - 3} more" if len(counts) > 3 else ""
        lines.append(f"{len(places)} {kind}: {reason} (in {shown}{more})")
    return lines


def _row(unit: Unit) -> tuple[str, ...]:
    entry, exit = _shape(unit.entry_shape), _shape(unit.exit_shape)
    name = unit.name if unit.parent is None else f"{unit.name} (in {unit.parent.name})"
    branches = "" if unit.branches == 1 else f" + {unit.branches} branches"
    return (
        str(unit.index),
        name,
        unit.kind + branches,
        " ".join(unit.tail.operations),
        "" if unit.stage is None else str(unit.stage),
        exit if entry == exit else f"{entry} -> {exit}",
        f"{unit.parameters:,}",
        ", ".join(unit.context),
        ", ".join(unit.side_outputs),
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
