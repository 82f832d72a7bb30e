"""Sweeps over many cases: a few of them in `make test`, all of them in `make test-slow`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], fast: Container[Any]) -> list[Any]:
    """Parameters of a test: cases in `fast` run always, the others are marked slow. A tuple holds several arguments.

    `fast` holds the fewest cases that still reach every branch of what is tested.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if case in fast else [pytest.mark.slow])
        for case in cases
    ]
