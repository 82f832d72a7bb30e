"""The report of a training that was monitored."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import skipscope as ss
from skipscope.report.content import content_of
from skipscope.report.page import page, write_page, write_report
from skipscope.report.shared_axes import share_axes
from skipscope.report.views import views
from skipscope.runs import load_run
from tests.monitor.loops import X, Y, small_model


def training(out: Path, steps: int, measures: list[str] | None = None) -> Path:
    model = small_model(blocks=2, dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ss.Monitor(model, X[:8], 2, measures, None, targets=Y[:8], optimizer=optimizer, out=out) as monitor:
        for _ in range(steps):
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
