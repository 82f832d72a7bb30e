"""What a report shows of trained n-shortcut networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import xarray

from skipscope.papers.b.figures.hessians import against_depth, against_loss
from skipscope.papers.b.figures.training import (
    by_depth,
    log_losses,
    norms_in_training,
    spread,
    state_variances,
    tuned_losses,
)
from skipscope.papers.b.learning_rates import log_excess
from skipscope.papers.b.studies.learning import STUDY as LEARNING
from skipscope.papers.b.studies.norms import STUDY as NORMS
from skipscope.papers.b.studies.shortcuts import STUDY as SHORTCUT_DEPTHS
from skipscope.papers.b.views.training import learning_view, norms_view, shortcuts_view
from skipscope.papers.kit.study import Study
from skipscope.report.views.view import View
from tests.papers.conftest import SmokeRun


@pytest.fixture(scope="module", name="learning")
def _learning(smoke_run: Callable[[Study], SmokeRun]) -> dict[str, xarray.Dataset]:
    return smoke_run(LEARNING).datasets()


@pytest.fixture(scope="module", name="norms")
def _norms(smoke_run: Callable[[Study], SmokeRun]) -> dict[str, xarray.Dataset]:
    return smoke_run(NORMS).datasets()


@pytest.fixture(scope="module", name="shortcuts")
def _shortcuts(smoke_run: Callable[[Study], SmokeRun]) -> dict[str, xarray.Dataset]:
    return smoke_run(SHORTCUT_DEPTHS).datasets()


def a_part(depth: int, final: list[float], **attrs: float) -> xarray.Dataset:
    losses = numpy.stack([final, numpy.full(len(final), numpy.inf)], 1)
    return xarray.Dataset(
        {
            "final": ("seed", final),
            "log_excess": ("seed", log_excess(numpy.array(final), 0.1)),
            "loss": (("seed", "rate"), losses),
        },
        {"rate": [0.1, 1.0]},
        {"depth": depth, "lowest_loss": 0.1, "best_rate": 0.1, "on_edge": 0, "flat": 0, **attrs},
    )


def test_losses_and_rates_by_depth() -> None:
    parts = [a_part(4, [0.2, 1.1]), a_part(8, [0.11, 0.11], on_edge=1), a_part(16, [0.5, 0.5], flat=1)]
    losses, rates = tuned_losses({"some": parts}, excess=True).data
    assert losses.y == pytest.approx([-0.5, -2, numpy.log10(0.4)])
    assert losses.error_y.array == pytest.approx([numpy.sqrt(0.5), 0, 0])
    assert rates.y[:2] == (0.1, 0.1)
    assert numpy.isnan(rates.y[2])
    assert rates.marker.symbol == losses.marker.symbol == ("circle", "circle-open", "circle")
    assert rates.text[1] == "on the edge of its grid"
    assert tuned_losses({"some": parts}, excess=False).data[0].y[2] == pytest.approx(numpy.log10(0.5))


def test_what_diverged_is_counted_at_the_mean_of_the_others() -> None:
    parts = [a_part(4, [1.0, 3.0]), a_part(8, [1.0, numpy.inf]), a_part(16, [numpy.inf, numpy.inf])]
    (curve,) = by_depth({"some": parts}, "final", "loss").data
    assert list(curve.y[:2]) == [2, 1]
    assert numpy.isnan(curve.y[2])
    assert list(curve.text) == ["", "1 of 2 diverged", "2 of 2 diverged"]


def test_rounding_is_no_distance() -> None:
    assert log_losses(a_part(4, [0.1, 0.1 - 1e-17]), excess=True).tolist() == [-15, -15]
    assert spread(numpy.array([1.0])) == 0


def test_networks_look_the_same_in_all_figures() -> None:
    names = ["2-shortcut", "xavier", "orthogonal"]
    logs = xarray.DataArray(numpy.ones((3, 2, 1)), dims=("architecture", "depth", "seed"))
    before = xarray.Dataset(
        {"log_condition": logs, "masked": 0 * logs}, {"architecture": names, "depth": [4, 8]}, {"log_ceiling": 14}
    )
    along = xarray.Dataset(
        {"index": logs.rename(depth="level")},
        {"architecture": names, "level": [2.0, 1.0]},
        {"lowest_loss": 0.3},
    )
    after = tuned_losses({name: [a_part(4, [0.2])] for name in ("Xavier", "2-shortcut", "orthogonal")}, excess=True)
    looks = [
        {trace.name.lower(): trace.line.color for trace in figure.data if trace.name}
        for figure in (against_depth(before), against_loss(along, {"index": "index"}), after)
    ]
    assert looks[0] == looks[1] == looks[2]
    assert len(set(looks[0].values())) == 3


def test_norms_with_bands_and_drops() -> None:
    def part(depth: int, seeds: int) -> xarray.Dataset:
        norm = numpy.outer(numpy.arange(1, seeds + 1), [0.0, 1.0, 2.0])
        return xarray.Dataset(
            {"norm": (("seed", "step"), norm)}, {"step": [0, 5, 10]}, {"depth": depth, "drops": numpy.array([4, 8])}
        )

    figure = norms_in_training({"one": [part(6, 1), part(12, 1)], "several": [part(6, 3)]}, "epoch")
    lines = [trace for trace in figure.data if trace.fill is None]
    bands = [trace for trace in figure.data if trace.fill]
    assert (len(lines), len(bands)) == (3, 1)
    assert [line.showlegend for line in lines] == [True, True, False]
    assert lines[2].y == pytest.approx([0, 2, 4])
    assert bands[0].y[:3] == pytest.approx([0, 3, 6])
    assert len(figure.layout.shapes) == 4


def test_states(norms: dict[str, xarray.Dataset]) -> None:
    figure = state_variances(norms["norms-states"])
    lines = {trace.name: trace.y for trace in figure.data if trace.fill is None}
    assert list(lines) == ["without BatchNorm", "with BatchNorm", "from zero"]
    assert lines["without BatchNorm"][-1] > lines["without BatchNorm"][0]
    assert lines["from zero"] == pytest.approx([lines["from zero"][0]] * len(lines["from zero"]), rel=1e-3)


def check(view: View, study: str) -> None:
    for table in view.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
        assert table.about
    for picture in view.figures.values():
        assert picture.studies == (study,)
        assert "The paper" in picture.caption or "the paper" in picture.caption
        assert "{" not in picture.caption
        assert picture.figure.data


def test_the_view_of_learning(learning: dict[str, xarray.Dataset]) -> None:
    view = learning_view(learning)
    check(view, "B.learning")
    assert list(view.figures) == ["learning-linear", "learning-relu", "learning-relu-unequal"]
    names = {trace.name for trace in view.figures["learning-linear"].figure.data}
    assert names == {"Xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut"}
    assert {trace.name for trace in view.figures["learning-relu"].figure.data} == {"Xavier", "orthogonal", "2-shortcut"}
    unequal = {trace.name for trace in view.figures["learning-relu-unequal"].figure.data}
    assert unequal == {"2-shortcut", "3-shortcut"}
    assert len(view.tables[0].rows) == 5 * 3
    assert view.sentences[0].startswith("Of linear networks of 24 layers, ")


def test_version_0_1_0_had_another_name_for_what_is_also_reported(learning: dict[str, xarray.Dataset]) -> None:
    old = {name: part.copy() for name, part in learning.items()}
    for part in old.values():
        part.attrs["besides"] = part.attrs.pop("also_reported")
    then, now = learning_view(old), learning_view(learning)
    assert list(then.figures) == list(now.figures)
    for name, picture in now.figures.items():
        assert then.figures[name].figure.to_json() == picture.figure.to_json()


def test_the_view_of_norms(norms: dict[str, xarray.Dataset]) -> None:
    view = norms_view(norms)
    check(view, "B.norms")
    assert list(view.figures) == ["norms-shortcut", "norms-states", "norms-branches"]
    assert [table.title for table in view.tables] == ["Weights after training", "Responses of branches"]


def test_the_view_of_shortcuts(shortcuts: dict[str, xarray.Dataset]) -> None:
    view = shortcuts_view(shortcuts)
    check(view, "B.shortcuts")
    assert list(view.figures) == ["shortcuts-connected"]
    assert view.figures["shortcuts-connected"].caption.startswith("A stand-in, which decides nothing")
    errors = xarray.Dataset({"error": ("seed", [0.06])}, {"seed": [0]})
    trained = {
        f"shortcuts-residual-{n}-{depth}": errors.assign_attrs(kind="residual", n=n, depth=depth, data="x", epochs=3)
        for n in (1, 2)
        for depth in (38, 110)
    }
    view = shortcuts_view(trained)
    check(view, "B.shortcuts")
    assert [trace.name for trace in view.figures["shortcuts-residual"].figure.data] == [
        "shortcuts of depth 1",
        "shortcuts of depth 2",
    ]
    assert view.tables[0].rows[0] == ["shortcuts of depth 1", "38", "0.06 ± 0", "1"]


def test_a_resnet_has_its_own_figure() -> None:
    part = xarray.Dataset(
        {
            "norm": (("seed", "step"), [[2.0, 1.0]]),
            "loss": (("seed", "step"), [[numpy.nan, 1.0]]),
            "branch": ("seed", [0.3]),
            "test_error": ("seed", [0.1]),
        },
        {"step": [0, 1]},
        {"kind": "residual", "depth": 20, "data": "cifar10", "rate": 0.1, "drops": numpy.array([1])},
    )
    view = norms_view({"a": part, "b": part.assign_attrs(depth=56)})
    check(view, "B.norms")
    assert list(view.figures) == ["norms-residual", "norms-branches"]


def test_a_run_that_was_stopped_shows_what_it_has(learning: dict[str, xarray.Dataset]) -> None:
    view = learning_view({"a": learning["learning-linear-xavier-6"]})
    assert (len(view.tables), len(view.figures)) == (1, 1)
    view = learning_view({"a": learning["learning-relu-xavier-4"]})
    assert (len(view.tables), len(view.figures), len(view.sentences)) == (1, 1, 0)
