"""The report of a training that was monitored."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import skipscope as ss
from skipscope.report.content import content_of
from skipscope.report.first_screen import first_screen
from skipscope.report.page import page, write_page, write_report
from skipscope.report.shared_axes import share_axes
from skipscope.report.views import views
from skipscope.runs import load_run
from skipscope.wording import number
from tests.monitor.loops import X, Y, small_model
from tests.report.test_browser import CHROMIUM, FLAGS


def training(out: Path, steps: int, measures: list[str] | None = None, jumps: int | None = None) -> Path:
    """jumps: the step from which on the rate is ten thousand times as large."""
    model = small_model(blocks=2, dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ss.Monitor(model, X[:8], 2, measures, None, targets=Y[:8], optimizer=optimizer, out=out) as monitor:
        for step in range(1, steps + 1):
            if step == jumps:
                optimizer.param_groups[0]["lr"] *= 1e4
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(X), Y)
            loss.backward()
            optimizer.step()
            monitor.step(loss)
            if steps == 4:
                monitor.step(float("nan"))
    return out


@pytest.fixture(scope="module", name="runs")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return training(folder / "long", 6), training(folder / "short", 4)


@pytest.mark.slow
def test_every_measure_is_drawn_over_the_steps(runs: tuple[Path, Path]) -> None:
    saved = load_run(runs[0])
    (view,) = views({name: saved.dataset(name) for name in saved.readable})
    titles = {one.text for one in view.figures["monitor"].figure.layout.annotations}
    assert {"loss of the training", "gain of the gradient, entry / exit", "stable rank of a weight"} <= titles
    assert {"sharpness over what the rate bears", "coupling with the next unit, 1 = chance"} <= titles
    first = next(trace for trace in view.figures["monitor"].figure.data if trace.meta == {"quantity": "loss"})
    assert list(first.x) == [1, 2, 3, 4, 5, 6]
    heat = view.figures["monitor-units"].figure.data[0]
    assert numpy.shape(heat.z) == (2, 4)
    assert not numpy.asarray(heat.z)[:, 0].any()  # no change at the first look
    assert "The training of Sequential went from a loss of" in " ".join(view.sentences)


def test_the_page_says_whether_an_alarm_rang(tmp_path: Path) -> None:
    runs = training(tmp_path / "calm", 6, ["sizes"]), training(tmp_path / "wild", 4, ["sizes"])
    calm, wild = (content_of(load_run(run)) for run in runs)
    assert calm.overview.headline == "Sequential: no alarm rang in 6 steps of training."
    assert "an alarm rang. The loss is not finite" in wild.overview.headline
    assert not calm.failures
    assert not wild.failures
    assert "While it trained" in page([calm, wild])


@pytest.mark.slow
def test_two_trainings_stand_side_by_side_with_one_axis_of_steps(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert write_report(runs[0]).is_file()
    assert write_page(runs, tmp_path / "both.html").is_file()
    figures = [content_of(load_run(run)).sections[-1].view.figures["monitor"].figure for run in runs]
    share_axes(figures)
    ranges = {tuple(axis.range) for figure in figures for axis in figure.select_xaxes()}
    assert len(ranges) == 1
    assert figures[0].layout.yaxis.range == figures[1].layout.yaxis.range


@pytest.mark.slow
def test_the_figure_is_public(runs: tuple[Path, Path]) -> None:
    saved = load_run(runs[0])
    figure = ss.plot.monitored({name: saved.dataset(name) for name in saved.readable})
    assert len(figure.data) > 5


@pytest.fixture(scope="module", name="jumped")
def _jumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An alarm at step 5, between the looks at 4 and 6."""
    return training(tmp_path_factory.mktemp("runs") / "jumped", 5, ["sizes", "sharpness"], jumps=5)


def test_an_alarm_from_a_new_rate_is_drawn_with_its_value_and_its_threshold(jumped: Path) -> None:
    content = content_of(load_run(jumped))
    assert not content.failures
    (alarms,) = (section for section in content.sections if section.measure == "alarms")
    (watched,) = (section for section in content.sections if section.measure == "monitor")
    saved = load_run(jumped)
    rang, sharpness = saved.dataset("alarms").isel(alarm=0), saved.dataset("sharpness")
    assert str(rang["name"].values) == "too sharp for the rate"
    assert int(sharpness["step"].max()) == 4

    figure = watched.view.figures["monitor"].figure
    drawn = {trace.name: trace for trace in figure.data}
    assert [*drawn["alarm"].x] == [5]
    (value,) = drawn["alarm"].y
    assert value == pytest.approx(float(sharpness["value"][-1]) * 1e3 / 2, rel=1e-6)  # 2 / rate, the rate being 1000
    assert value > 1.5
    assert {*drawn["threshold"].y} == {1.5}
    curve = next(trace for trace in figure.data if trace.meta == {"quantity": "sharpness"})
    assert drawn["alarm"].yaxis == drawn["threshold"].yaxis == curve.yaxis
    assert figure.layout[curve.yaxis.replace("y", "yaxis")].type == "log"

    assert (
        "Diamond: the last sharpness over what the rate of that step bears" in watched.view.figures["monitor"].caption
    )
    assert f"At step 5 it was {number(value)} times what the rate of that step bears." in content.summary
    assert first_screen(content)["panels"] == ("loss", "sharpness")
    assert [table.sentences for table in alarms.view.tables] == [True]


def test_without_that_alarm_there_is_no_diamond(tmp_path: Path) -> None:
    saved = load_run(training(tmp_path / "calm", 2, ["sizes", "sharpness"]))
    (view,) = views({name: saved.dataset(name) for name in saved.readable})
    assert not {"alarm", "threshold"} & {trace.name for trace in view.figures["monitor"].figure.data}
    assert "Diamond" not in view.figures["monitor"].caption


@pytest.mark.parametrize(
    ("rate", "drawn"), [(None, []), (0.1, [["learning rate", "sharpness over what the rate bears"]])]
)
def test_a_training_without_a_finite_loss_has_a_report(
    tmp_path: Path, rate: float | None, drawn: list[list[str]]
) -> None:
    """Without a rate nothing is left to draw: the sharpness has no limit then."""
    model = small_model(blocks=2)
    with ss.Monitor(model, X[:8], 1, ["sharpness"], None, targets=Y[:8], rate=rate, out=tmp_path / "run") as monitor:
        monitor.step(float("nan"))
    content = content_of(load_run(tmp_path / "run"))
    assert not content.failures
    figures = [picture.figure for picture in content.sections[-1].view.figures.values()]
    assert [[one.text for one in figure.layout.annotations] for figure in figures] == drawn


def test_lines_of_alarms_are_as_high_as_their_panels(jumped: Path, tmp_path: Path) -> None:
    """Also where the axes of two trainings become the same."""
    runs = jumped, training(tmp_path / "calm", 2, ["sizes", "sharpness"])
    sections = [content_of(load_run(run)).sections[-1] for run in runs]
    figures = [section.view.figures["monitor"].figure for section in sections]
    share_axes(figures)
    lines = figures[0].layout.shapes
    panels = {trace.yaxis or "y" for trace in figures[0].data}
    assert {line.yref for line in lines} == {f"{panel} domain" for panel in panels}
    assert {(line.x0, line.x1, line.y0, line.y1) for line in lines} == {(5, 5, 0, 1)}
    assert not figures[1].layout.shapes


def test_nothing_to_draw_is_said_in_words(jumped: Path) -> None:
    with pytest.raises(ss.InputError, match=r"nothing to draw; expected .* monitor\.datasets after a look, got none"):
        ss.plot.monitored({})
    saved = load_run(jumped)
    with pytest.raises(ss.InputError, match=r"after a look, got alarms"):
        ss.plot.monitored({"alarms": saved.dataset("alarms")})
    with pytest.raises(ss.InputError, match="expected the datasets of a monitor by their names"):
        ss.plot.monitored(saved.dataset("sizes"))


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_on_a_phone_an_alarm_is_a_list_and_numbers_stay_whole(jumped: Path, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    file = write_page([jumped], tmp_path / "page.html")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(file.as_uri())
        told = page.locator("#alarms td[data-column='what it says']")
        assert told.bounding_box()["width"] > 300
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.locator("#alarms thead").wait_for(state="hidden")
        page.set_viewport_size({"width": 1400, "height": 900})
        page.locator("#alarms thead").wait_for(state="visible")
        cells = page.locator("#monitor td:not(.word)").all()
        assert cells
        assert {one.evaluate("one => getComputedStyle(one).whiteSpace") for one in cells} == {"nowrap"}
        browser.close()
