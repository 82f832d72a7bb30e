"""Columns of text, one below the other: how every table of the package is printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def in_columns(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), titles: Sequence[str] | None = None
) -> list[str]:
    """Lines with two spaces between columns and none at their ends.

    right: the columns that are aligned to the right, numbers as a rule. titles: a first line, which is underlined.
    """
    lines = [*([] if titles is None else [titles]), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if titles is not None:
        lines.insert(1, ["-" * width for width in widths])
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
