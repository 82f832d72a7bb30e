"""Threads sleep while they wait, where that can still be chosen and was not chosen otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW = "import os; print(os.environ.get('OMP_WAIT_POLICY'))"


@pytest.mark.parametrize(
    ("first", "given", "expected"),
    [
        ("import skipscope", None, "PASSIVE"),
        ("import skipscope", "ACTIVE", "ACTIVE"),
        ("import sys, types; sys.modules['torch'] = types.ModuleType('torch'); import skipscope", None, "None"),
    ],
    ids=["by default", "as the user says", "torch is there already"],
)
def test_how_threads_wait(first: str, given: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    run = subprocess.run(
        [sys.executable, "-c", f"{first}; {SHOW}"], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == expected
