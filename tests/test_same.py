"""The comparison of two run folders by scripts/same.py, on folders made by hand."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import xarray


def script() -> ModuleType:
    path = Path(__file__).parent.parent / "scripts" / "same.py"
    spec = importlib.util.spec_from_file_location("same", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["same"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


same = script()


def run_of(
    folder: Path,
    *,
    values: tuple[float, ...] = (1.0, float("nan"), 3.0),
    stage: tuple[int, ...] = (0, 0, 1),
    span: str = "stage 0",
    study: str | None = None,
    verdict: str = "reproduced",
    what: str = "study D",
    code: int = 0,
) -> dict[str, Any]:
    (folder / "run" / "data").mkdir(parents=True)
    data = xarray.Dataset(
        {"sigma": ("unit", numpy.array(values))},
        {"unit": ["stage1.0", "stage1.1", span], "stage": ("unit", numpy.array(stage))},
        {"measure": "spectra"} | ({} if study is None else {"study": study}),
    )
    data.to_netcdf(folder / "run" / "data" / "spectra.nc", engine="h5netcdf")
    claims = [{"id": "D1", "measured": {"share": [0.25, None]}, "verdict": verdict}]
    (folder / "run" / "claims.json").write_text(json.dumps(claims))
    record = {"what": what, "parameters": {"D.law": {"images": 2}}, "start": str(folder), "hashes": {"a": str(folder)}}
    (folder / "run" / "run.json").write_text(json.dumps(record))
    (folder / "done.json").write_text(json.dumps({"command": "study run D", "exit code": code, "seconds": 1}))
    found: dict[str, Any] = same.content_of(folder)
    return found


CHANGED = {"stage": (1, 1, 2), "span": "stage 1", "study": "D.law"}  # what is declared


def differences(rows: dict[str, Any]) -> list[str]:
    return [text for row in rows.values() for text in row.differences]


def test_two_runs_of_the_same_code_are_equal_but_for_times_and_hashes(tmp_path: Path) -> None:
    rows = same.compare(run_of(tmp_path / "old"), run_of(tmp_path / "new"), exact=True)
    assert differences(rows) == []
    assert set(rows) == {"command", "data/spectra.nc", "claims.json", "run.json"}
    assert rows["data/spectra.nc"].values >= 9
    assert rows["data/spectra.nc"].declared == 0


def test_one_value_that_differs_is_shown_with_its_size(tmp_path: Path) -> None:
    new = run_of(tmp_path / "new", values=(1.0, float("nan"), 3.5))
    rows = same.compare(run_of(tmp_path / "old"), new, exact=True)
    (text,) = differences(rows)
    assert "data/spectra.nc | sigma | values" in text
    assert "1 of 3 differ, by up to 0.5, relative 0.167" in text
    assert rows["data/spectra.nc"].absolute == 0.5
    assert "DIFFERS in 1 places" in same.table(rows)


@pytest.mark.parametrize(
    ("values", "size"),
    [((1.0, 2.0, 3.0), "inf, relative inf"), ((1.0, float("nan"), numpy.nextafter(3.0, 4.0)), "4.44e-16")],
)
def test_a_number_in_place_of_nan_and_the_last_bit_count(tmp_path: Path, values: tuple[float, ...], size: str) -> None:
    new = run_of(tmp_path / "new", values=values)
    (text,) = differences(same.compare(run_of(tmp_path / "old"), new, exact=True))
    assert f"1 of 3 differ, by up to {size}" in text


def test_a_verdict_that_differs(tmp_path: Path) -> None:
    new = run_of(tmp_path / "new", verdict="inconclusive", **CHANGED)
    (text,) = differences(same.compare(run_of(tmp_path / "old"), new))
    assert text == "claims.json | D1 | verdict: expected reproduced, got inconclusive"


def test_a_command_that_fails(tmp_path: Path) -> None:
    new = run_of(tmp_path / "new", code=70, **CHANGED)
    (text,) = differences(same.compare(run_of(tmp_path / "old"), new))
    assert text.startswith("command | exit code: expected 0, got 70")


def test_files_that_are_missing_or_new(tmp_path: Path) -> None:
    old, new = run_of(tmp_path / "old"), run_of(tmp_path / "new", **CHANGED)
    without = {place: value for place, value in new.items() if "sigma" not in place}
    assert all(text.endswith("missing in NEW") for text in differences(same.compare(old, without)))
    (text,) = differences(same.compare(old, {**new, "data/more.nc | sizes | unit": 3}))
    assert text == "data/more.nc | sizes | unit: only in NEW: 3"


# ---- declared changes


def test_the_declared_changes_are_accepted_and_counted(tmp_path: Path) -> None:
    rows = same.compare(run_of(tmp_path / "old"), run_of(tmp_path / "new", **CHANGED))
    assert differences(rows) == []
    assert rows["data/spectra.nc"].declared == 3 + 3 + 1  # stage, unit and the attribute


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"stage": (0, 0, 1)}, "| stage | values (a declared change)"),  # not made
        ({"stage": (1, 1, 3)}, "| stage | values (a declared change)"),  # a wrong shift
        ({"span": "stage 0"}, "| unit | values (a declared change)"),
        ({"study": None}, "| attribute | study (a declared change): missing in NEW"),
        ({"study": "A.alignment"}, "| attribute | study: only in NEW: A.alignment"),
        ({"study": "D"}, "| attribute | study: only in NEW: D"),
    ],
)
def test_a_declared_change_that_is_not_as_declared_is_refused(
    tmp_path: Path, wrong: dict[str, Any], place: str
) -> None:
    new = run_of(tmp_path / "new", **(CHANGED | wrong))
    (text,) = differences(same.compare(run_of(tmp_path / "old"), new))
    assert place in text


def test_datasets_of_an_inspection_have_no_study(tmp_path: Path) -> None:
    old = run_of(tmp_path / "old", what="inspect")
    (text,) = differences(same.compare(old, run_of(tmp_path / "new", what="inspect", **CHANGED)))
    assert text == "data/spectra.nc | attribute | study: only in NEW: D.law"


def test_names_and_texts_that_were_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = run_of(tmp_path / "old"), run_of(tmp_path / "new", **CHANGED)
    new = {place.replace("| sigma |", "| singular_values |"): value for place, value in new.items()}
    new["claims.json | D1 | verdict"] = "shown"
    assert differences(same.compare(old, new))
    monkeypatch.setattr(same, "RENAMED", {"sigma": "singular_values", "reproduced": "shown"})
    assert differences(same.compare(old, new)) == []
