"""What a report shows of the Hessians of n-shortcut networks."""

from __future__ import annotations

import numpy
import pytest
import xarray

from skipscope.papers.b.figures.hessians import against_depth, against_loss, learning_dynamics, mean_and_spread
from skipscope.papers.b.views.hessians import dynamics_view, epochs_view, initial_view

NAMES = ["xavier", "orthogonal", "1-shortcut", "2-shortcut"]


def initial_data(masked: bool = True) -> xarray.Dataset:
    """One run only at the last depth; of Xavier's three at depth 16 one is masked."""
    logs = numpy.arange(4.0)[:, None, None] + numpy.array([1.0, 2.0, 3.0])[:, None] + numpy.array([0.0, 0.1, 0.2])
    logs[:, 2, 1:] = numpy.nan
    lost = numpy.where(numpy.isnan(logs), numpy.nan, 0.0)
    if masked:
        logs[0, 1, 2], lost[0, 1, 2] = numpy.nan, 1.0
    dimensions = ("architecture", "depth", "seed")
    return xarray.Dataset(
        {"log_condition": (dimensions, logs), "masked": (dimensions, lost)},
        {"architecture": NAMES, "depth": [4, 16, 64], "seed": [0, 1, 2]},
        {"measure": "shortcut_initial", "study": "B.initial", "data": "mnist", "log_ceiling": 13},
    )


def dynamics_data() -> xarray.Dataset:
    """Xavier's runs begin lower; none has the first loss, one has the second."""
    levels = numpy.array([5.0, 3.0, 1.0, 0.5])
    values = numpy.broadcast_to(numpy.arange(4.0)[:, None, None] + numpy.array([[0.0], [0.2]]), (4, 2, 4)).copy()
    values[0, :, 0] = values[0, 0, 1] = numpy.nan
    dimensions = ("architecture", "seed", "level")
    keys = ("log_largest", "log_tenth", "log_condition", "index")
    at_excess = (("architecture", "seed", "excess"), values[:, :, :1])
    return xarray.Dataset(
        {
            **dict.fromkeys(keys, (dimensions, values)),
            "at_excess": at_excess,
            "rate": ("architecture", [0.01, 0.1, 0.1, 0.1]),
        },
        {"architecture": NAMES, "seed": [0, 1], "level": levels, "excess": [3.0]},
        {"measure": "shortcut_dynamics", "data": "mnist", "depth": 16, "lowest_loss": 0.3},
    )


def epochs_data() -> xarray.Dataset:
    steps = numpy.array([[0.0, 10, 20], [0, 8, numpy.nan]])
    return xarray.Dataset(
        {
            "step": (("seed", "epoch"), steps),
            "index": (("seed", "epoch"), [[0.5, 0.5, 0.4], [0.5, 0.4, numpy.nan]]),
            "gradient_norm": (("seed", "every"), numpy.abs(numpy.sin(numpy.arange(100.0).reshape(2, 50) / 10))),
            "peak": ("seed", [16.0, 4.0]),
            "drop": ("seed", [15.0, 4.0]),
            "converged": ("seed", [18.0, numpy.nan]),
            "fall": ("seed", [7.0, numpy.nan]),
        },
        {"seed": [0, 1]},
        {"measure": "shortcut_epochs", "data": "mnist", "depth": 16, "rate": 0.1},
    )


def test_means_leave_out_what_is_not_finite() -> None:
    values = xarray.DataArray([[1.0, 3.0], [2.0, numpy.inf], [numpy.nan, numpy.nan]], dims=("depth", "seed"))
    mean, spread, count = mean_and_spread(values)
    assert count.tolist() == [2, 1, 0]
    numpy.testing.assert_allclose(mean, [2, 2, numpy.nan])
    numpy.testing.assert_allclose(spread, [2**0.5, 0, numpy.nan])


def test_masked_runs_are_crosses_at_the_ceiling() -> None:
    figure = against_depth(initial_data())
    assert [trace.name for trace in figure.data] == ["xavier", "xavier, masked", *NAMES[1:]]
    curve, cross = figure.data[:2]
    numpy.testing.assert_allclose(curve.y, [1.1, 2.05, 3])
    numpy.testing.assert_allclose(curve.error_y.array, [0.1, 0.05 * 2**0.5, 0], atol=1e-12)
    assert (list(cross.x), list(cross.y), list(cross.customdata)) == ([16], [13], [1])
    assert len(against_depth(initial_data(masked=False)).data) == 4


def test_the_loss_falls_to_the_right_and_bands_are_standard_deviations() -> None:
    figure = against_loss(dynamics_data(), {"log_largest": "largest", "index": "index"})
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert len(lines) == len(bands) == 2 * 4
    assert sum(line.showlegend for line in lines) == 4
    assert {axis.autorange for axis in (figure.layout.xaxis, figure.layout.xaxis2)} == {"reversed"}
    numpy.testing.assert_allclose(lines[0].x, [2.7, 0.7, 0.2])  # above the optimum; without the loss that no run has
    numpy.testing.assert_allclose(lines[0].customdata[:, 0], [3, 1, 0.5])
    numpy.testing.assert_allclose(lines[0].y, [0.2, 0.1, 0.1])
    numpy.testing.assert_allclose(bands[1].y[:4], 1.1 + 0.02**0.5)  # there, and back below
    numpy.testing.assert_allclose(bands[1].y[4:], 1.1 - 0.02**0.5)
    empty = dynamics_data()
    empty["index"][0] = numpy.nan
    assert len(against_loss(empty, {"index": "index"}).data) == 2 * 3


@pytest.mark.parametrize(("run", "last"), [(0, 20), (1, 8)])
def test_gradient_and_index_of_one_run(run: int, last: int) -> None:
    figure = learning_dynamics(epochs_data(), run)
    gradient, index = figure.data
    assert gradient.x[-1] == index.x[-1] == last
    assert index.yaxis == "y2"
    assert len(figure.layout.shapes) == 2


def test_the_view_before_training() -> None:
    view = initial_view({"initial": initial_data()})
    (picture,) = view.figures.values()
    assert "3 runs (1 at depth 64)" in picture.caption
    assert "1 value above 1e13" in picture.caption
    assert picture.studies == ("B.initial",)
    (table,) = view.tables
    assert table.rows[0] == ["4", "1.100 ± 0.100", "2.100 ± 0.100", "3.100 ± 0.100", "4.100 ± 0.100", "0"]
    assert table.rows[2] == ["64", "3.000", "4.000", "5.000", "6.000", "0"]
    assert table.rows[1][-1] == "1"
    assert "values above 1e13" in table.about
    assert "at depths 4 to 64" in view.sentences[0]
    assert "1e13" not in initial_view({"a": initial_data(masked=False)}).figures["a-depth"].caption


def test_the_view_on_the_way() -> None:
    view = dynamics_view({"dynamics": dynamics_data()})
    assert list(view.figures) == ["dynamics-eigenvalues", "dynamics-condition"]
    assert "networks of depth 16 are trained on mnist" in view.figures["dynamics-eigenvalues"].caption
    condition, index, excess = view.tables
    assert excess.rows == [["3", "-", "1.10 ± 0.14", "2.10 ± 0.14", "3.10 ± 0.14"]]
    assert len(dynamics_view({"dynamics": dynamics_data().drop_vars("at_excess")}).tables) == 2
    assert [row[1] for row in condition.rows] == ["-", "0.20", "0.10 ± 0.14", "0.10 ± 0.14"]
    assert index.rows[0][2] == "1.1000 ± 0.1414"
    assert "xavier 0.01, orthogonal 0.1" in condition.about


def test_the_view_step_by_step() -> None:
    view = epochs_view({"dynamics-epochs": epochs_data()})
    assert "learning rate 0.1" in view.figures["dynamics-epochs"].caption
    (table,) = view.tables
    assert table.rows == [
        ["0", "16", "15", "7", "18", "0.5000", "0.4000", "0.4000"],
        ["1", "4", "4", "-", "-", "0.5000", "0.4000", "0.4000"],
    ]
