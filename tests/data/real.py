"""The real data sets, for tests that check published numbers; such tests are skipped where the files are not."""

from __future__ import annotations

import os

import pytest

from skipscope.data import Dataset, NotFound, load


def require(name: str) -> Dataset:
    root = os.environ.get("SKIPSCOPE_DATA")
    if not root:
        pytest.skip(f"needs the real {name}: set SKIPSCOPE_DATA to the folder that holds it")
    try:
        return load(f"{name}:{root}")
    except NotFound as error:
        pytest.skip(str(error))
