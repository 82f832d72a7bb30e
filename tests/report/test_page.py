"""A whole report of perturbations, scaled skips and noise."""

from __future__ import annotations

from pathlib import Path

from skipscope.inspection.result import load
from skipscope.report import write_report
from skipscope.runs import RunFolder
from tests.report.synthetic import noise_data, scaling_data, stability_data


def test_a_run_with_these_datasets_is_saved_read_again_and_drawn(tmp_path: Path) -> None:
    datasets = {"stability": stability_data(), "scaling": scaling_data(), "noise": noise_data()}
    with RunFolder(tmp_path / "run", "study") as run:
        for name, data in datasets.items():
            run.write_dataset(name, data)
    text = write_report(tmp_path / "run").read_text()
    for title in ("Growth of perturbations", "Spectra with a scaled skip", "Weights mixed with noise"):
        assert f"<h2>{title} of a net</h2>" in text
    assert text.count("<figcaption>") == 6
    result = load(tmp_path / "run")
    for name in ("growth", "prediction", "projections", "plateau", "mixtures", "histograms"):
        assert result.plot(name).data
        assert any(path.stem.endswith(f"-{name}") for path in (tmp_path / "run" / "figures").iterdir())
