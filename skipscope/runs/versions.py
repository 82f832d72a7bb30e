"""What a run was asked for and made with, and how that differs from what is asked for now."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Iterator, Mapping
from typing import Any

PACKAGE = __name__.partition(".")[0]
LIBRARIES = ("torch", "numpy", "xarray")
UNMIXED = (PACKAGE, "torch")  # versions that all parts of a run share


def versions() -> dict[str, str]:
    found = {name: str(importlib.import_module(name).__version__) for name in (PACKAGE, *LIBRARIES)}
    return {**found, "python": platform.python_version()}


def differences_of(found: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Why a run with the record `found` cannot go on as `asked`, in words; nothing where it can."""
    differences = [
        f"{key} was {_short(old)} and is now {_short(new)}"
        for key, old, new in _leaves({key: found.get(key) for key in asked}, asked)
        if old != new
    ]
    before, now = found["versions"], versions()
    return differences + [
        f"{name} was {before.get(name)} and is now {now[name]} (parts of different versions are not mixed)"
        for name in UNMIXED
        if before.get(name) != now[name]
    ]


def _leaves(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place of two nested mappings, with what the one and the other hold there."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _leaves(old.get(key), new.get(key), key if name in ("", "parameters") else f"{name}.{key}")
    else:
        yield name, old, new


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
