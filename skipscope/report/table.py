"""A table as text and as HTML shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipscope.visible import visible

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first `names` columns are words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    about: str = ""  # what is in it and how to read it
    names: int = 1

    def __str__(self) -> str:
        # A line end in a name would make a row of its own.
        lines = [[visible(cell).replace("\n", "\\n") for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        lines.insert(1, ["-" * width for width in widths])
        text = [
            "  ".join(
                c.ljust(w) if i < self.names else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        return "\n".join([visible(self.title), *(line.rstrip() for line in text)])


def number(value: float) -> str:
    """A whole number to a million in full, others to three digits, six near 1; a dash where there is nothing."""
    if math.isnan(value):
        return "-"
    if abs(value) <= 1e6 and value == round(value):
        return str(round(value))
    if 0 < abs(value - 1) < 5e-3:
        return f"{value:.6g}"  # what is near 1 is not 1
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or value == 0 or math.isinf(value) else f"{value:.1e}"


def mean_count(value: float) -> str:
    """The mean of counts: in full where it is whole, else with one decimal."""
    return number(value) if math.isnan(value) or math.isinf(value) or value == round(value) else f"{value:.1f}"


def with_error(value: float, error: float) -> str:
    """An estimate and its standard error, of two digits."""
    if math.isnan(value) or math.isnan(error):
        return number(value)
    return f"{number(value)} ± {number(float(f'{error:.1e}'))}"


def rows_of(data: xarray.Dataset, columns: Mapping[str, str], names: int = 1) -> list[list[str]]:
    """One row per member of the dataset's only dimension; the first `names` columns are words."""
    (dimension,) = data.dims
    rows = []
    for place in range(data.sizes[dimension]):
        here = data.isel({dimension: place})
        words = [str(here[key].item()) for key in list(columns)[:names]]
        rows.append([*words, *(number(float(here[key])) for key in list(columns)[names:])])
    return rows
