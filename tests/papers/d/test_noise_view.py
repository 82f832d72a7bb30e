"""What a report shows of weights mixed with noise."""

from __future__ import annotations

import numpy
import pytest

from skipscope.papers.d.figures import mixture_histograms, mixtures, shown_mixtures
from skipscope.papers.d.views import noise_view
from tests.report.synthetic import noise_data


def test_lines_are_units_and_the_thick_one_their_mean() -> None:
    data = noise_data()
    figure = mixtures(data)
    units = [trace for trace in figure.data if trace.name == "one unit"]
    means = [trace for trace in figure.data if trace.name == "mean over the units"]
    assert (len(units), len(means)) == (6, 2)
    shares = data["share_near_one"].values  # mixture, t, unit, draw, sample
    numpy.testing.assert_allclose(units[1].y, shares[0, :, 1].mean((1, 2)))
    numpy.testing.assert_allclose(means[1].y, shares[1].mean((1, 2, 3)))
    numpy.testing.assert_allclose(means[0].x, data["t"])
    assert [title.text for title in figure.layout.annotations] == ["convex: t θ + (1 - t) η", "norm: √t θ + √(1 - t) η"]


def test_histograms_are_those_of_one_unit_at_five_mixtures() -> None:
    data = noise_data(amounts=tuple(k / 20 for k in range(21)))
    data["histogram"][:, :, 1] = 7
    assert shown_mixtures(data) == [0, 5, 10, 15, 20]
    figure = mixture_histograms(data, "stage1.0")
    assert len(figure.data) == 10
    numpy.testing.assert_allclose(figure.data[6].y, data["histogram"][1, 5, 0])
    numpy.testing.assert_allclose(figure.data[6].x, data["bin"])
    assert [bars.showlegend for bars in figure.data] == [True, False, False, False, False] * 2
    assert {title.text for title in figure.layout.annotations} == {
        f"t = {t}" for t in ("0", "0.25", "0.5", "0.75", "1")
    }
    assert (mixture_histograms(data, "stage2.0").data[0].y == 7).all()


@pytest.mark.parametrize(
    ("amounts", "shown"), [((0.1, 0.9), [0, 1]), ((0.4, 0.5, 0.6), [1]), (tuple(k / 11 for k in range(1, 11)), 5)]
)
def test_other_mixtures_are_shown_where_there_are_no_quarters(
    amounts: tuple[float, ...], shown: list[int] | int
) -> None:
    places = shown_mixtures(noise_data(amounts=amounts))
    assert (len(places) if isinstance(shown, int) else places) == shown


def test_the_table_has_shares_and_where_they_are_largest() -> None:
    data = noise_data()
    data["share_near_one"][1, :, 2] = numpy.nan
    (table,) = noise_view({"n": data}).tables
    assert table.title == "Weights mixed with noise of a net"
    assert table.columns == ["unit", "mixture", "t = 0", "t = 0.25", "t = 0.5", "t = 0.75", "t = 1", "largest at t"]
    assert len(table.rows) == 6
    assert table.rows[0][:2] == ["stage1.0", "convex"]
    assert table.rows[0][4] == f"{float(data['share_near_one'][0, 2, 0].mean()):.3g}"
    assert table.rows[0][-1] == "0.5"
    assert table.rows[1][-1] == "0"  # of equal ones the first
    assert table.rows[5][2:] == ["-"] * 6


def test_missing_draws_are_left_out_of_the_mean() -> None:
    data = noise_data()
    data["share_near_one"][0, 0, 0, 1] = numpy.nan
    expected = float(data["share_near_one"][0, 0, 0, 0].mean())
    assert noise_view({"n": data}).tables[0].rows[0][2] == f"{expected:.3g}"


@pytest.mark.parametrize(("units", "samples", "draws"), [(1, 1, 1), (1, 3, 1), (4, 1, 2)])
def test_few_units_samples_and_draws(units: int, samples: int, draws: int) -> None:
    view = noise_view({"n": noise_data(units=units, samples=samples, draws=draws, amounts=(0.5,))})
    assert list(view.figures) == ["n-mixtures", "n-histograms"]
    assert len(view.tables[0].rows) == 2 * units
    assert f"{draws} {'draw' if draws == 1 else 'draws'} of noise" in view.figures["n-mixtures"].caption


def test_without_counts_there_are_no_histograms() -> None:
    assert list(noise_view({"n": noise_data().drop_vars("histogram")}).figures) == ["n-mixtures"]
