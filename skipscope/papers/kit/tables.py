"""A dataset from rows, as the studies of theorems make them: one row per case, one variable per column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray


def table(dimension: str, names: Iterable[Any], rows: Sequence[Mapping[str, Any]], **attributes: Any) -> xarray.Dataset:
    """names: of the rows, the coordinate of the dimension. Every row has the keys of the first."""
    import xarray

    columns = {key: (dimension, [row[key] for row in rows]) for key in rows[0]}
    return xarray.Dataset(columns, {dimension: list(names)}, attributes)
