"""Parts of a dataset: what charts draw as one series or panel, and tables show as one row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray


def members(dataset: xarray.Dataset, key: str) -> Iterator[tuple[Any, xarray.Dataset]]:
    """Of a dimension, or rows with the same value of a variable, in the order of the first of each; value and part."""
    if not key:
        yield "", dataset
        return
    (dimension,) = dataset[key].dims
    for value in dict.fromkeys(dataset[key].values.tolist()):
        chosen = dataset[key].values == value
        yield value, dataset.isel({dimension: chosen.argmax() if key == dimension else chosen})
