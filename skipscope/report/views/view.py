"""What a report shows of one kind of measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skipscope.report.table import Table

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class View:
    tables: Sequence[Table] = ()
    figures: Mapping[str, tuple[str, Any]] = field(default_factory=dict)  # name: (caption, Plotly figure)


def network_of(name: str, dataset: xarray.Dataset) -> str:
    """What a dataset was measured on, or its own name."""
    return str(dataset.attrs.get("network", name))


def titled(title: str, dataset: xarray.Dataset) -> str:
    network = dataset.attrs.get("network", "")
    return f"{title} of {network}" if network else title
