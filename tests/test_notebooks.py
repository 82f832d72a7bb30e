"""In notebooks and pipelines: tables of pandas, the report in a cell, the workflow of the documentation."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray
import yaml

import skipscope as ss
from skipscope.inspection.tables import long_table, wide_table
from tests.cli.test_help import parse
from tests.monitor.loops import X, Y, small_model
from tests.report.test_browser import CHROMIUM, FLAGS

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module", name="result")
def _result() -> ss.Result:
    torch.manual_seed(0)
    model, x = ss.build("resnet8-digits-n8"), torch.randn(2, 1, 8, 8)
    trunk = ss.trace(model, x)
    return ss.Result({"profile": ss.profile(trunk, x), "verification": ss.verification(trunk, x)}, {})


def test_the_long_table_has_every_number_once(result: ss.Result) -> None:
    table = result.to_pandas()
    variables = [
        (name, variable, data)
        for name, dataset in result.datasets.items()
        for variable, data in dataset.data_vars.items()
        if data.dtype.kind in "fiub"
    ]
    assert len(table) == sum(data.size for _, _, data in variables)
    for name, variable, data in variables:
        rows = table[(table.dataset == name) & (table.variable == variable)]
        for place in rows.itertuples():
            where = {dim: getattr(place, dim) for dim in data.dims}
            assert float(data.sel(where)) == place.value
        numpy.testing.assert_array_equal(rows.value, data.values.reshape(-1).astype(float))
    assert "seen" not in set(table.variable)  # words


def test_a_dataset_has_a_column_per_variable(result: ss.Result) -> None:
    table = result.to_pandas("profile")
    profile = result["profile"]
    assert len(table) == profile.sizes["unit"] * profile.sizes["sample"]
    assert list(table.columns[:2]) == ["unit", "sample"]
    assert {"stage", "skip", "state_rms", "effective_rank"} <= set(table.columns)
    row = table.iloc[3]
    assert row.state_rms == float(profile["state_rms"].sel(unit=row.unit)[row["sample"]])
    assert row.effective_rank == float(profile["effective_rank"].sel(unit=row.unit))
    by_unit = result.to_pandas("profile", over="unit")
    assert len(by_unit) == profile.sizes["unit"]
    assert "state_rms" not in by_unit.columns
    assert "seen" in result.to_pandas("verification").columns


def test_tables_of_unusual_datasets() -> None:
    data = xarray.Dataset({"number": 3.0, "words": "a"})
    assert long_table({"d": data}).to_dict("list") == {"dataset": ["d"], "variable": ["number"], "value": [3.0]}
    assert list(long_table({}).columns) == ["dataset", "variable", "value"]
    line = xarray.Dataset({"a": ("x", [1.0, 2.0]), "b": 5.0})
    assert wide_table(line, None).to_dict("list") == {"x": [0, 1], "a": [1.0, 2.0], "b": [5.0, 5.0]}


def test_bad_input(result: ss.Result, tmp_path: Path) -> None:
    with pytest.raises(ss.InputError, match="there is no dataset 'nothing'"):
        result.to_pandas("nothing")
    with pytest.raises(ss.InputError, match="no dimension 'token'; there are unit, sample"):
        result.to_pandas("profile", over=("token",))
    with pytest.raises(ss.InputError, match="needs a dataset"):
        result.to_pandas(over=("unit",))
    with pytest.raises(ss.InputError, match="got nothing"):
        ss.report()
    with pytest.raises(ss.InputError, match="got int"):
        ss.report(3)  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="no dataset to show yet; a monitor has some after its first look"):
        ss.report({})
    with pytest.raises(ss.InputError, match="or several by their names, got dict"):
        ss.report({"sizes": 3})  # type: ignore[dict-item]
    with pytest.raises(ss.InputError, match="positive number of pixels"):
        ss.report(result, height=0)
    with pytest.raises(ss.InputError, match="height='a': expected a positive number of pixels"):
        ss.report(result, height="a")  # type: ignore[arg-type]
    for over in ([], ["unit", "unit"]):
        with pytest.raises(ss.InputError, match="expected one dimension or more, each once, of unit, sample"):
            result.to_pandas("profile", over=over)
    with pytest.raises(ss.InputError, match="d has a dimension 'value', which is the name of a column"):
        long_table({"d": xarray.Dataset({"a": ("value", [1.0])})})
    with pytest.raises(ss.InputError):
        ss.report(tmp_path / "nowhere")


def test_a_report_is_a_frame_of_its_own(result: ss.Result, tmp_path: Path) -> None:
    page = ss.report(result["profile"], height=300)
    assert "Profile" in page.html
    assert len(repr(page)) < 100
    shown = page._repr_html_()
    assert shown.startswith("<iframe ")
    assert 'sandbox="allow-scripts allow-downloads"' in shown  # scripts, and nothing of the notebook
    assert "height: 300px" in shown
    inside = re.search(r'srcdoc="([^"]*)"', shown)
    assert inside is not None
    assert html.unescape(inside.group(1)).lower().startswith("<!doctype html>")
    assert page.save(tmp_path / "page.html").read_text(encoding="utf-8") == page.html


def test_reports_of_a_monitor_and_of_datasets_by_their_names(result: ss.Result) -> None:
    """A monitor while it watches, without a run folder: as the report of its run folder would be."""
    model = small_model(blocks=2)
    model.train()
    with ss.Monitor(model, X[:8], 1, ["sizes"], None, targets=Y[:8]) as monitor:
        monitor.step(1.0)
        by_monitor, by_datasets = ss.report(monitor).html, ss.report(monitor.datasets).html
    for page in (by_monitor, by_datasets):
        assert "skipscope: monitor" in page
        assert "no alarm rang in 1 step of training" in page
        assert "While it trained" in page
        assert "not complete" not in page
    assert "have never seen data" not in by_monitor
    both = ss.report({"a / b": result["profile"], "a - b": result["profile"]}).html  # no names of files
    assert "skipscope: inspect" in both


@pytest.mark.slow
def test_reports_of_results_and_folders(result: ss.Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "run")
    before = sorted(path.name for path in folder.rglob("*"))
    for what in (result, folder, str(folder), ss.load(folder)):
        assert "Tests of the linearisation" in ss.report(what).html
    assert sorted(path.name for path in folder.rglob("*")) == before  # nothing is written
    both = ss.report(result, folder).html
    assert "result 1" in both


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_frame_works_in_a_browser(result: ss.Result, tmp_path: Path) -> None:
    """Figures are drawn, and links lead to places in the frame, not to the notebook's address."""
    playwright: Any = pytest.importorskip("playwright.sync_api")
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<h1>notebook</h1>{ss.report(result)._repr_html_()}", encoding="utf-8")
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(notebook.as_uri())
        frame = page.frames[1]
        frame.click("nav a[href='#profile']")
        frame.wait_for_selector("#profile .main-svg")
        assert frame.url == "about:srcdoc#profile"
        assert frame.evaluate("scrollY") > 0
        reached = frame.evaluate("(() => { try { return parent.document.title } catch (e) { return e.name } })()")
        assert reached == "SecurityError"
        browser.close()
    assert complaints == []


def test_the_workflow_parses_and_names_what_there_is() -> None:
    file = DOCS / "check-before-training.yml"
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    steps = workflow["jobs"]["check"]["steps"]
    commands = [step["run"] for step in steps if step.get("run", "").startswith("skipscope")]
    assert [command.split()[1] for command in commands] == ["check", "contract"]
    for command in commands:
        parse(shlex.split(command)[1:])
        assert "--strict" in command
    shown = re.search(r"```yaml\n(.*?)```", (DOCS / "notebooks.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert yaml.safe_load(shown.group(1)) == workflow
    assert shown.group(1) in file.read_text(encoding="utf-8")
