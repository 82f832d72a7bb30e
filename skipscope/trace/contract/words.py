"""A contract as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from skipscope.text_table import in_columns
from skipscope.trace.contract.places import Contract, HookStep, UnitContract
from skipscope.wording import counted

COLUMNS = ("#", "unit", "what is added to the skip", "tail", "the state after it", "error")
WRONG = 1e-3  # from here on it is worth a line that a module's output is not the branch


def headline(contract: Contract) -> str:
    units = counted(len(contract.units), "residual unit")
    if not contract.units:
        return f"{contract.model}: {units}; there is no sum to say anything about"
    held = sum(unit.holds for unit in contract.units)
    if held == len(contract.units):
        return f"{contract.model}: {units}; exit = tail(skip + branch) holds for all of them, asserted with hooks"
    return f"{contract.model}: {units}; exit = tail(skip + branch) is asserted with hooks for {held} of them"


def as_text(contract: Contract) -> str:
    lines = [headline(contract)]
    rows = [_row(unit) for unit in contract.units if unit.holds]
    if rows:
        used = [i for i, _ in enumerate(COLUMNS) if any(row[i] for row in rows)]
        right = [place for place, i in enumerate(used) if COLUMNS[i] in ("#", "error")]
        lines += in_columns([[row[i] for i in used] for row in rows], right=right, titles=[COLUMNS[i] for i in used])
    return "\n".join([*lines, *remarks(contract)])


def as_html(contract: Contract) -> str:
    cells = "".join(f"<th>{html.escape(column)}</th>" for column in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _row(unit)) + "</tr>"
        for unit in contract.units
        if unit.holds
    )
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in remarks(contract))
    return f"<p>{html.escape(headline(contract))}</p>{table}" + (f"<ul>{items}</ul>" if items else "")


def remarks(contract: Contract) -> list[str]:
    """What whoever puts hooks on this model has to know; each once, with the units that it holds for."""
    groups: dict[str, list[str]] = {}
    for unit in contract.units:
        for remark in _remarks(unit):
            groups.setdefault(remark, []).append(unit.unit)
    return [f"{remark} ({_some(units)})" for remark, units in groups.items()]


def _remarks(unit: UnitContract) -> list[str]:
    if not unit.holds:
        return [f"no map: {unit.problem}"]
    found = []
    if unit.adds_residual and not unit.parallel:
        found.append("note: the module that the unit is named after returns the sum, not the branch")
    if unit.parallel:
        found.append(f"note: {len(unit.branches)} branches read one entry: there is no state between them")
    wrong = [branch for branch in unit.branches if branch.naive_error is None or branch.naive_error > WRONG]
    for branch in wrong if not unit.adds_residual else ():
        if branch.norm is not None:
            found.append("note: a norm follows the module before the sum: its output is not what is added")
        elif branch.steps or branch.coefficient != 1:
            found.append("note: the module's output is multiplied or changed before it is added")
    places = [unit.entry, unit.exit, *(branch.exact or branch.place for branch in unit.branches)]
    if any(place is not None and place.overwritten for place in places):
        found.append("note: later code writes into the hooked tensor: clone it inside the hook")
    return found


def _row(unit: UnitContract) -> tuple[str, ...]:
    return (
        str(unit.index),
        unit.unit,
        " + ".join(map(str, unit.branches)),
        _chained(unit.tail),
        str(unit.exit),
        "" if unit.error is None else f"{unit.error:.1e}",
    )


def _chained(steps: Sequence[HookStep]) -> str:
    return ", ".join(step.what for step in steps)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
