"""One module per row of the table: `works(size)` gives its pieces of work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from benchmarks.kit import Size, Work

ROWS = {
    "full-spectra": "benchmarks.rows.full_spectra",
    "leading-triplets": "benchmarks.rows.leading_triplets",
    "hessian-density": "benchmarks.rows.hessian_density",
    "hessian-eigenvalues": "benchmarks.rows.hessian_eigenvalues",
    "tracing": "benchmarks.rows.tracing",
    "linear-networks": "benchmarks.rows.linear_networks",
    "fleets": "benchmarks.rows.fleets",
}


def works(row: str, size: Size) -> list[Work]:
    make: Callable[[Size], Iterable[Work]] = import_module(ROWS[row]).works
    return list(make(size))
