"""The benchmark of language models runs at a tiny size, in memory and from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import language


@pytest.mark.parametrize("shape", [pytest.param(shape, marks=pytest.mark.slow) for shape in ("tiny", "tiny-streamed")])
def test_every_phase_is_measured_and_written(shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "language.json"
    assert language.main([shape, "--device", "cpu", "--tokens", "6", "--rows", "4", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == found
    expected = {"model", "trace", "states", "alignment", "coupling"}
    expected |= {"files"} if shape == "tiny-streamed" else {"path", "dense", "lens"}
    assert set(found["phases"]) == expected
    assert found["left_out"] == []
    for name in ("alignment", "coupling"):
        assert found["phases"][name]["converged"]
        assert found["phases"][name]["routes"] == ["path of the chosen tokens"]
    if shape == "tiny":
        assert found["phases"]["dense"]["difference"] < 1e-4  # float32 beside float64
        for unit in found["phases"]["path"]["units"].values():
            assert unit["times_fewer_operations"] >= 6  # as many as there are tokens


def test_what_there_is_no_time_for_is_named(tmp_path: Path) -> None:
    phases = language.Phases("tiny", language.torch.device("cpu"), 0.0, tmp_path / "out.json")
    assert phases.run("trace", lambda: 1 / 0) is None
    assert json.loads((tmp_path / "out.json").read_text())["left_out"] == ["trace"]
