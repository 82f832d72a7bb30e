"""The benchmarks themselves: what a row says, what the guard complains of, that the page is that of the results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import page
from benchmarks.__main__ import _rows_there, _together
from benchmarks.growth import exponent
from benchmarks.guard import complaints, verdict
from benchmarks.kit import OURS, Size, Way, Work, agrees, measured, summary
from benchmarks.rows import ROWS
from benchmarks.rows.leading_triplets import golub_kahan
from skipscope.linear.operator import Dense

ROOT = Path(__file__).resolve().parent.parent.parent
SMOKE = Size("smoke", rounds=2)


@pytest.fixture(autouse=True)
def nothing_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among all that tests have imported, looking for garbage takes longer than what is measured here."""
    monkeypatch.setattr("benchmarks.kit.gc.collect", lambda: 0)


def work(difference: float = 0.0, part: float = 1.0) -> tuple[Work, list[str]]:
    calls: list[str] = []

    def way(name: str, loops: int) -> Way:
        def run() -> int:
            calls.append(name)
            return sum(range(loops))

        return Way(run, part if name != OURS else 1.0, products=lambda answer: answer)

    ways = {OURS: way(OURS, 10), "the other": way("the other", 200_000)}
    return Work("adding", ways, lambda answers: difference, allowed=0.1), calls


def test_ways_take_turns_and_the_first_round_is_not_counted() -> None:
    some, calls = work()
    row = measured(some, SMOKE)
    assert calls == [OURS, "the other"] * 3
    assert row["times_faster"]["the other"] > 2
    assert row["products"] == {OURS: 45, "the other": sum(range(200_000))}
    assert agrees(row)
    assert "x over the other" in summary(row)


def test_a_part_of_the_work_is_counted_once_after_a_warm_up_and_multiplied() -> None:
    some, calls = work(part=0.01)
    row = measured(some, SMOKE)
    assert calls.count("the other") == 2
    assert row["multiplied"] == ["the other"]
    assert row["seconds"]["the other"] > 50 * row["seconds"][OURS]
    assert "(multiplied)" in summary(row)


@pytest.mark.parametrize("difference", [0.2, float("nan")])
def test_other_answers_are_no_alternative(difference: float) -> None:
    assert not agrees(measured(work(difference)[0], SMOKE))


def row(ratio: float, difference: float = 0.0) -> dict[str, Any]:
    return {"work": "adding", "times_faster": {"the other": ratio}, "difference": difference, "allowed": 0.1}


@pytest.mark.parametrize(
    ("now", "complaint"),
    [
        (row(3.1), ""),
        (row(2.9), "2.9 times as fast as the other, committed 6"),
        (row(float("nan")), "nan times as fast"),
        (row(9.0, difference=0.5), "answers differ by 0.5"),
    ],
)
def test_the_guard_complains_below_half_of_a_committed_ratio(now: dict[str, Any], complaint: str) -> None:
    found = complaints(now, row(6.0))
    assert [complaint in one for one in found] == ([True] if complaint else [])
    assert "commit them" in complaints(now, None)[0]


def test_the_verdict_is_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed = tmp_path / "smoke.json"
    committed.write_text(json.dumps({"rows": [row(6.0)]}))
    assert verdict([row(5.0)], committed) == 0
    assert verdict([row(1.0)], committed) == 1
    assert "FAILED adding" in capsys.readouterr().err


def test_rows_of_other_machines_are_not_mixed(tmp_path: Path) -> None:
    machine = {
        "device": "one",
        "processor": "some",
        "cores": 2,
        "threads": 2,
        "torch": "2",
        "python": "3",
        "load": [1.0],
    }
    path = tmp_path / "gpu.json"
    assert _rows_there(path, machine) == []
    rows = [{"row": "full-spectra"}, {"row": "gone since"}]
    path.write_text(json.dumps({"machine": machine, "rows": rows}), encoding="utf-8")
    assert _rows_there(path, {**machine, "load": [4.0]}) == rows[:1]
    with pytest.raises(SystemExit, match=r"another machine \(device: one, here another\)"):
        _rows_there(path, {**machine, "device": "another"})
    path.write_text(json.dumps({"rows": rows}), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"another machine \(device: None, here one"):
        _rows_there(path, machine)


def test_works_that_are_not_measured_anew_stay() -> None:
    """A machine that is lent may be taken back between two works of a row."""

    def works(row: str, *names: str) -> list[dict[str, object]]:
        return [{"row": row, "work": name} for name in names]

    there = works("full-spectra", "a", "b, with 3 images") + works("leading-triplets", "c", "d", "e")
    stopped = _together(there, works("leading-triplets", "c"))
    assert [row["work"] for row in stopped] == ["a", "b, with 3 images", "d", "e", "c"]
    later = _together(there, works("leading-triplets", "c", "d"))
    assert [row["work"] for row in later] == ["a", "b, with 3 images", "e", "c", "d"]
    next_row = _together(there, works("full-spectra", "a", "b, with 5 images") + works("leading-triplets", "c"))
    assert [row["work"] for row in next_row] == ["a", "b, with 5 images", "d", "e", "c"]
    ended = _together(there, works("full-spectra", "a", "b, with 5 images"), ended=True)
    assert [row["work"] for row in ended] == ["a", "b, with 5 images", "c", "d", "e"]


def test_exponents_are_those_of_power_laws() -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    assert exponent(sizes, [3.0 * size**1.5 for size in sizes]) == 1.5
    assert exponent(sizes, [100.0, 100, 100, 8, 16, 32]) == 1  # the smaller half is not looked at


def test_the_short_recurrence_finds_the_largest_values() -> None:
    values = torch.linspace(1, 10, 60).flip(0)
    matrix = torch.linalg.qr(torch.randn(2, 60, 60)).Q * values @ torch.linalg.qr(torch.randn(2, 60, 60)).Q.mT
    found, products = golub_kahan(Dense(matrix), 3, 1e-4)
    torch.testing.assert_close(found, values[:3].expand(2, 3), rtol=1e-3, atol=0)
    assert products <= 2 * 61


def test_the_page_is_that_of_the_committed_results() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "run python -m benchmarks page"


def test_every_row_has_a_committed_ratio() -> None:
    committed = json.loads((ROOT / "benchmarks" / "results" / "smoke.json").read_text(encoding="utf-8"))["rows"]
    assert {row["row"] for row in committed} == set(ROWS)
    assert all(agrees(row) for row in committed)


@pytest.mark.slow
def test_skipscope_has_not_become_slow() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "guard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
