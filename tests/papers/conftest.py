"""Smoke runs of studies, which take seconds: one of each for all tests that look at what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import xarray

from skipscope.papers.kit import Bench, Evidence, Study
from skipscope.runs import RunFolder, load_run


@dataclass(frozen=True)
class SmokeRun:
    found: Evidence
    again: Evidence  # by a second call, which finds all parts in the folder
    path: Path

    def datasets(self) -> dict[str, xarray.Dataset]:
        """All but pieces of others, loaded anew: a test may change them."""
        saved = load_run(self.path)
        parts = {name: saved.dataset(name).load() for name in saved.names}
        return {name: part for name, part in parts.items() if "measure" in part.attrs}


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Study], SmokeRun]:
    runs: dict[str, SmokeRun] = {}

    def run_of(study: Study) -> SmokeRun:
        if study.id not in runs:
            path = tmp_path_factory.mktemp("smoke") / study.name
            with RunFolder(path, f"study {study.id}") as run:
                bench = Bench(study.id, run, preset="smoke", seed=0, device="cpu")
                found, again = (study.run(bench, study.presets["smoke"]) for _ in range(2))
            runs[study.id] = SmokeRun(found, again, path)
        return runs[study.id]

    return run_of
