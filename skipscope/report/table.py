"""A table as text and as HTML shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import xarray

from skipscope.report.style import members
from skipscope.text_table import in_columns
from skipscope.visible import visible
from skipscope.wording import number as number  # the rule for numbers; tables are where views look for it


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first `names` columns are words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    about: str = ""  # what is in it and how to read it
    names: int = 1
    sentences: bool = False  # whether cells hold some: on a phone they stand below each other

    def __str__(self) -> str:
        # A line end in a name would make a row of its own.
        titles, *rows = [[visible(cell).replace("\n", "\\n") for cell in row] for row in (self.columns, *self.rows)]
        numbers = range(self.names, len(titles))
        return "\n".join([visible(self.title), *in_columns(rows, right=numbers, titles=titles)])


def mean_count(value: float) -> str:
    """The mean of counts: in full where it is whole, else with one decimal."""
    return number(value) if math.isnan(value) or math.isinf(value) or value == round(value) else f"{value:.1f}"


def count_of(key: str) -> Callable[[xarray.Dataset], str]:
    """A cell with the mean of counts."""
    return lambda here: mean_count(float(here[key]))


def with_error(value: float, error: float) -> str:
    """An estimate and its standard error, of two digits."""
    if math.isnan(value) or math.isnan(error):
        return number(value)
    return f"{number(value)} ± {number(float(f'{error:.1e}'))}"


def estimate(data: xarray.Dataset, key: str) -> str:
    """A number with its standard error, where the dataset has one."""
    error = f"{key}_error"
    return with_error(float(data[key]), float(data[error])) if error in data else number(float(data[key]))


def either(key: str, yes: str = "yes", no: str = "no") -> Callable[[xarray.Dataset], str]:
    """A cell with one of two words."""
    return lambda here: yes if bool(here[key]) else no


Cell = str | tuple[str, str] | Callable[[xarray.Dataset], str]  # variable; with a reduction; or the cell's text


@dataclass(frozen=True)
class EachOf:
    """A column for each member of a dimension, which is {0} in its title."""

    dimension: str
    cell: Cell

    def at(self, place: int) -> Cell:
        return lambda here: _cell(here.isel({self.dimension: place}), self.cell, word=False)


Columns = Mapping[str, Cell | EachOf]


@dataclass(frozen=True)
class TableOf:
    """How a dataset becomes a table.

    rows: dimensions, or variables, with the titles of their columns: one row per member of each. Without any, there is
    one row per member of the dataset's only dimension; an empty title shows no column. columns: by title, the other
    cells of a row. The first `names` columns are words. about: may name attributes of the dataset and the sizes of its
    dimensions, {number_of_layer}.
    """

    title: str
    columns: Columns
    about: str
    rows: Mapping[str, str] = field(default_factory=dict)
    names: int = 1

    def __call__(self, data: xarray.Dataset) -> Table:
        sizes = {f"number_of_{dimension}": size for dimension, size in data.sizes.items()}
        title, about = (text.format(**sizes, **data.attrs) for text in (self.title, self.about))
        return table_of(data, title, self.columns, about, rows=self.rows, names=self.names)


def table_of(
    data: xarray.Dataset,
    title: str,
    columns: Columns,
    about: str,
    *,
    rows: Mapping[str, str] | None = None,
    names: int = 1,
) -> Table:
    """The table that `TableOf` describes, with these words as its title and about it."""
    cells: dict[str, Cell] = {}
    for name, cell in columns.items():
        if isinstance(cell, EachOf):
            cells |= {name.format(value): cell.at(place) for place, value in enumerate(data[cell.dimension].values)}
        else:
            cells[name] = cell
    lines = _lines(_rows(data, rows) if rows else _places(data), cells, names)
    return Table(title, [*filter(None, (rows or {}).values()), *cells], lines, about, names)


def table_of_each(
    cases: Mapping[str, xarray.Dataset],
    title: str,
    columns: Mapping[str, Cell],
    about: str,
    *,
    what: str = "network",
    rows: Mapping[str, str] | None = None,
    names: int = 1,
) -> Table:
    """One table of several datasets, whose names are in the first column, with this title; without rows one of each."""
    rows = rows or {}
    parts = [([case, *words], here) for case, data in cases.items() for words, here in _rows(data, rows)]
    return Table(title, [what, *filter(None, rows.values()), *columns], _lines(parts, columns, names), about, names)


def _lines(
    parts: Iterable[tuple[list[str], xarray.Dataset]], columns: Mapping[str, Cell], names: int
) -> list[list[str]]:
    return [
        [*words, *(_cell(here, cell, word=len(words) + place < names) for place, cell in enumerate(columns.values()))]
        for words, here in parts
    ]


def _rows(data: xarray.Dataset, titles: Mapping[str, str]) -> Iterator[tuple[list[str], xarray.Dataset]]:
    """Words and dataset of each row."""
    if not titles:
        yield [], data
        return
    (key, title), *others = titles.items()
    for value, part in members(data, key):
        word = f"{value:g}" if isinstance(value, float) else str(value)
        for words, here in _rows(part, dict(others)):
            yield ([word, *words] if title else words), here


def _places(data: xarray.Dataset) -> Iterator[tuple[list[str], xarray.Dataset]]:
    (dimension,) = data.dims
    for place in range(data.sizes[dimension]):
        yield [], data.isel({dimension: place})


def _cell(here: xarray.Dataset, cell: Cell, *, word: bool) -> str:
    if callable(cell):
        return cell(here)
    if isinstance(cell, tuple):
        variable, reduction = cell
        return number(float(getattr(here[variable], reduction)()))
    return str(here[cell].item()) if word else number(float(here[cell]))
