"""Whole reports from run folders: what they say, and that they are one file that needs nothing."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Container
from pathlib import Path

import pytest

from skipscope.errors import InputError
from skipscope.inspection.result import load
from skipscope.report import write_page, write_report
from skipscope.report.page import distinct_labels
from skipscope.report.trunk_map import trunk_maps
from skipscope.report.views import UnitNumbers, View
from skipscope.runs import RunFolder
from tests.report.synthetic import decision, noise_data, scaling_data, spectra_data, stability_data

DATASETS = ("spectra", "perturbations", "scaling", "noise")


def saved(path: Path, *, network: str = "a net", decided: bool = False, only: Container[str] = DATASETS) -> Path:
    datasets = {
        "spectra": spectra_data(network=network).assign_attrs(study="D.spectra"),
        "perturbations": stability_data(network=network),
        "scaling": scaling_data(network=network),
        "noise": noise_data(),
    }
    with RunFolder(path, "study", preset="quick") as run:
        for name, data in datasets.items():
            if name in only:
                run.write_dataset(name, data)
        if decided:
            run.write_claims([decision()])
    return path


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = saved(tmp_path_factory.mktemp("report") / "run", decided=True)
    write_report(path)
    return path


@pytest.fixture(scope="module", name="text")
def _text(run: Path) -> str:
    return (run / "report.html").read_text()


def embedded(text: str, element: str) -> list[str]:
    return re.findall(rf"<script type=\"application/json\"{element}>(.*?)</script>", text, re.DOTALL)


def test_a_run_with_these_datasets_is_saved_read_again_and_drawn(run: Path, text: str) -> None:
    for title in ("Growth of perturbations", "Spectra with a scaled skip", "Weights mixed with noise"):
        assert f"<summary>{title} of a net</summary>" in text
    assert text.count("<figcaption>") == 10  # one of them on the first screen too
    result = load(run)
    assert result.plot("scree").data
    figures = result.figures  # once: plot() draws all of them for each name
    for name in (
        "scree",
        "proportions",
        "depth",
        "growth",
        "prediction",
        "projections",
        "plateau",
        "mixtures",
        "histograms",
    ):
        assert next(figure for own, figure in figures.items() if own.endswith(f"-{name}")).data
        assert any(file.stem.endswith(f"-{name}") for file in (run / "figures").iterdir())


def test_one_file_that_asks_for_nothing(text: str) -> None:
    assert len(re.findall("plotly.js v", text)) == 1
    assert re.findall(r"<(?:script|img|iframe)[^>]* src=|<link[^>]*href=|@import", text) == []
    assert "default-src &#39;none&#39;" in text


def test_every_embedded_document_is_json_and_closes_no_element(tmp_path: Path) -> None:
    text = write_report(saved(tmp_path / "run", network="</script><b>net</b>")).read_text()
    figures, maps = embedded(text, ""), embedded(text, ' id="map-0"')
    assert len(figures) == 9
    assert len(maps) == 1
    for document in (*figures, *maps):
        json.loads(document)
    assert "</script><b>" not in text


def test_the_map_holds_the_numbers_of_the_datasets(run: Path, text: str) -> None:
    found = json.loads(embedded(text, ' id="map-0"')[0])
    (one,) = [found for found in found if found["network"] == "a net"]
    spectra, stability = load(run)["spectra"], load(run)["perturbations"]
    names = [unit["name"] for unit in one["units"]]
    assert names == [str(name) for name in stability["unit"].values]
    values = {measure["title"]: measure for measure in one["measures"]}
    largest = spectra["largest"].mean("sample").sel(unit=names)
    assert values["largest singular value"]["values"] == pytest.approx(largest.values.tolist(), rel=1e-8)
    growth = stability["actual"].sel(kind="random").median("sample")
    assert values["growth of a perturbation, random"]["values"] == pytest.approx(growth.values.tolist(), rel=1e-8)
    assert values["largest singular value"]["unsure"] == [name == names[1] for name in names]
    scree = one["curves"][names[0]][0]
    first = spectra["value"].sel(unit=names[0]).isel(sample=0).dropna("index").values
    assert scree["curves"][0]["y"] == pytest.approx(first.tolist(), rel=1e-8)


def test_what_did_not_converge_is_marked_everywhere(run: Path, text: str) -> None:
    assert '<td class="word">stage1.1 *</td>' in text
    assert "Not converged: stage1.1." in text
    figures = load(run).figures
    assert "stage1.1 *" in figures["spectra-proportions"].data[0].x
    assert "circle-open" in figures["spectra-depth"].data[0].marker.symbol


def test_claims_stand_in_the_table_and_under_their_pictures(text: str) -> None:
    assert text.count('href="#claim-D4"') == 2  # under the scree plot and the shares
    assert "&lt;too few&gt; networks" in text
    assert 'class="verdict inconclusive"' in text


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    first, second = saved(tmp_path / "first", decided=True), saved(tmp_path / "second", network="another net")
    before = {file: file.stat().st_mtime_ns for file in first.rglob("*")}
    text = write_page([first, second], tmp_path / "out" / "both.html").read_text()
    assert {file: file.stat().st_mtime_ns for file in first.rglob("*")} == before
    assert text.count("<figcaption>") == 19  # and one of both runs together
    assert "skipscope: first, second" in text
    assert len(re.findall(r'class="trunk"', text)) == 2


def test_a_page_is_a_file(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got a folder"):
        write_page([run, run], tmp_path)


def test_labels_of_runs_are_the_ends_of_their_paths() -> None:
    assert distinct_labels([Path("a/run"), Path("b/run")]) == ["a/run", "b/run"]
    assert distinct_labels([Path("a/run"), Path("b/other")]) == ["run", "other"]
    assert distinct_labels([Path("a"), Path("a")]) == ["a (1)", "a (2)"]


def test_a_dataset_that_is_gone(tmp_path: Path) -> None:
    path = saved(tmp_path / "run", only=["noise", "scaling"])
    (path / "data" / "noise.nc").unlink()
    assert "Missing from the folder: data/noise.nc." in write_report(path).read_text()


def test_records_that_were_written_by_hand(tmp_path: Path) -> None:
    path = saved(tmp_path / "run", only=["noise"])  # the record is what this is about
    record = json.loads((path / "run.json").read_text())
    for change in ({"start": "long ago"}, {"end": 7}, {"parameters": {"source": "a text"}}):
        (path / "run.json").write_text(json.dumps({**record, **change}))
        assert "skipscope: study" in write_page([path], tmp_path / "page.html").read_text(encoding="utf-8"), change


def test_numbers_of_one_measure_from_two_datasets_are_merged() -> None:
    first = UnitNumbers("net", "largest", {"a": 1.0, "b": 2.0}, unsure=frozenset({"b"}))
    second = UnitNumbers("net", "largest", {"b": 9.0, "c": 3.0}, unsure=frozenset({"b", "c"}), words={"c": "odd"})
    (one,) = trunk_maps({}, [View(numbers=[first]), View(numbers=[second])])
    assert [unit["name"] for unit in one["units"]] == ["a", "b", "c"]
    assert one["measures"][0]["values"] == [1.0, 2.0, 3.0]
    assert one["measures"][0]["unsure"] == [False, True, True]


def test_a_run_that_is_not_complete_says_so(tmp_path: Path) -> None:
    with contextlib.suppress(RuntimeError), RunFolder(tmp_path / "run", "study") as run:
        run.write_dataset("noise", noise_data())
        raise RuntimeError
    assert "This run is not complete" in write_report(tmp_path / "run").read_text()
