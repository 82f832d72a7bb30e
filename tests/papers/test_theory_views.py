"""What a report shows of the theorems of paper B."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import xarray

from skipscope.papers.b.figures.theory import (
    error_growth,
    levels,
    small_norms,
    zero_conditions,
    zero_spectrum,
    zero_stationarity,
)
from skipscope.papers.b.studies.theorem1 import STUDY as THEOREM1
from skipscope.papers.b.studies.theorem2 import STUDY as THEOREM2
from skipscope.papers.b.views.theory import small_weights_view, zero_weights_view
from skipscope.papers.kit.study import Study
from tests.papers.conftest import SmokeRun


@pytest.fixture(scope="module", name="zero")
def _zero(smoke_run: Callable[[Study], SmokeRun]) -> dict[str, xarray.Dataset]:
    return smoke_run(THEOREM2).datasets()


@pytest.fixture(scope="module", name="small")
def _small(smoke_run: Callable[[Study], SmokeRun]) -> dict[str, xarray.Dataset]:
    return smoke_run(THEOREM1).datasets()


def test_levels_are_counted() -> None:
    values, times = levels(numpy.array([1.0, -2.0, 1.0 + 1e-12, 3.0, -2.0, 1.0]))
    assert times.tolist() == [2, 3, 1]
    assert values == pytest.approx([-2, 1, 3])


def test_condition_numbers_beside_those_of_m(zero: dict[str, xarray.Dataset]) -> None:
    data = zero["theorem2-conditions"]
    figure = zero_conditions(data)
    curves = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert len(curves) == 2 * data.sizes["data"]
    assert sum(curve.showlegend for curve in curves) == data.sizes["data"]
    numpy.testing.assert_allclose(curves[0].y, data["condition"].values[0, 0])
    dotted = [trace for trace in figure.data if trace.mode == "lines"]
    assert dotted[-1].y[0] == pytest.approx(float(data["condition_of_M"][-1]))


def test_every_eigenvalue_for_shortcuts_of_depth_two_is_a_stem(zero: dict[str, xarray.Dataset]) -> None:
    data = zero["theorem2-spectrum"]
    histogram, _, stems = zero_spectrum(data).data
    assert sum(histogram.y) == 4 * 100
    assert list(stems.y) == [10 * 4] * 20
    numpy.testing.assert_allclose(stems.x, -stems.x[::-1], atol=1e-12)


def test_changes_below_rounding_are_left_out(zero: dict[str, xarray.Dataset]) -> None:
    figure = zero_stationarity(zero["theorem2-stationarity"])
    assert [trace.name for trace in figure.data][:3] == [f"n = {n}, slope {n}.000" for n in (1, 2, 3)]
    assert numpy.isfinite(figure.data[0].y).all()
    assert numpy.isnan(figure.data[3].y[0])


def test_norms_and_errors(small: dict[str, xarray.Dataset]) -> None:
    norms = small["theorem1-norms"]
    largest, limit, bound, *_ = small_norms(norms).data
    numpy.testing.assert_allclose(largest.y, norms["largest"].values[0] * norms["units"].values[0] ** 0.5)
    assert (largest.y < bound.y).all()
    assert largest.y == pytest.approx(limit.y, rel=0.05)
    errors = small["theorem1-errors"]
    grown, composed, *_ = error_growth(errors).data
    assert grown.y[0] < grown.y[1]
    numpy.testing.assert_allclose(composed.y, errors["composed"])


def test_the_view_of_zero_weights(zero: dict[str, xarray.Dataset]) -> None:
    view = zero_weights_view(zero)
    assert list(view.figures) == ["zero-conditions", "zero-spectrum", "zero-stationarity"]
    assert {picture.studies for picture in view.figures.values()} == {("B.theorem2",)}
    assert "for 4 units on digits" in view.figures["zero-spectrum"].caption
    assert len(view.tables) == 8
    for table in view.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
        assert table.about
    assert view.tables[1].rows[-1][:3] == ["digits", "complex", "2"]
    assert len(view.sentences) == 2


def test_the_view_of_small_weights(small: dict[str, xarray.Dataset]) -> None:
    view = small_weights_view(small)
    assert list(view.figures) == ["small-norms", "small-errors"]
    assert [table.title for table in view.tables] == ["Lemma 1", "Lemma 2", "Theorem 1: norms", "Theorem 1: errors"]
    for table in view.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
    assert len(view.tables[0].rows) == 9
    assert "for points at distance 0.2" in view.sentences[0]


def test_a_run_that_was_stopped_shows_what_it_has(
    zero: dict[str, xarray.Dataset], small: dict[str, xarray.Dataset]
) -> None:
    view = zero_weights_view({"a": zero["theorem2-forms"]})
    assert (len(view.tables), len(view.figures), len(view.sentences)) == (1, 0, 1)
    view = small_weights_view({"a": small["theorem1-lemma1"]})
    assert (len(view.tables), len(view.figures), len(view.sentences)) == (1, 0, 0)
