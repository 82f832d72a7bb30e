"""Data sets by name: `NAME` or `NAME:PATH`."""

from __future__ import annotations

from collections.abc import Callable

from skipscope.data.dataset import Dataset
from skipscope.data.digits import digits
from skipscope.errors import InputError

__all__ = ["Dataset", "digits", "load"]

LOADERS: dict[str, Callable[[str | None], Dataset]] = {"digits": digits}


def load(spec: str) -> Dataset:
    """The data set that `spec` names; what follows the colon is where its files are."""
    name, _, path = spec.partition(":")
    if name not in LOADERS:
        raise InputError(f"no data set '{name}'; known: {', '.join(LOADERS)}")
    return LOADERS[name](path or None)
