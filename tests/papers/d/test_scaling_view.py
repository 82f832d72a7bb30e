"""What a report shows of scaled skips."""

from __future__ import annotations

import numpy
import pytest

from skipscope.papers.d.figures import plateau
from skipscope.papers.d.views import scaling_view
from tests.report.synthetic import scaling_data


def test_one_curve_an_alpha_and_a_line_at_each_size_of_alpha() -> None:
    data = scaling_data()
    figure = plateau(data, ["stage1.0", "stage2.0"])
    curves = [trace for trace in figure.data if trace.name == "alpha = 0.5"]
    assert len(figure.data) == 4 * 2 * 2
    assert [curve.showlegend for curve in curves] == [True, False, False, False]
    numpy.testing.assert_allclose(curves[1].y, data["value"].sel(alpha=0.5)[0, 1])
    assert len(curves[2].y) == 15  # the last unit has half as many values, no NaN is drawn
    assert curves[2].x[-1] == 1
    assert [shape.y0 for shape in figure.layout.shapes] == [0.5, 1, 1.5] * 2


def test_alphas_have_different_colours_and_dashes() -> None:
    curves = {trace.name: trace.line for trace in plateau(scaling_data(), ["stage1.0"]).data}
    assert len({line.color for line in curves.values()}) == len({line.dash for line in curves.values()}) == 4


def test_the_table_has_a_row_for_every_unit_and_alpha() -> None:
    data = scaling_data(length=12_345)
    data["correlation"].loc[{"alpha": 1.0}] = numpy.nan
    data["inactive"][0, 0, 0] += 1
    data["counted"][1, 0, 0] += 3
    data["generic"][2, 0, 0] = 0
    (table,) = scaling_view({"s": data}).tables
    assert table.columns == ["unit", "alpha", "n", "z", "r", "proved", "counted", "correlation"]
    assert [row[:2] for row in table.rows[:4]] == [["stage1.0", alpha] for alpha in ("-1", "0.5", "1", "1.5")]
    assert table.rows[0][2:7] == ["12345", "2469.5", "3086", "4115", "4115"]
    assert table.rows[1][6] == "4116.5"
    assert table.rows[2][7] == "-"
    assert "Of 15 spectra with 2 r < n - z, counted equals proved in 14." in table.about


@pytest.mark.parametrize(("units", "samples"), [(1, 1), (1, 3), (7, 1)])
def test_few_and_many_units(units: int, samples: int) -> None:
    view = scaling_view({"s": scaling_data(units=units, samples=samples)})
    picture = view.figures["s-plateau"]
    caption, figure = picture.caption, picture.figure
    assert ("one curve per alpha and sample," in caption) == (samples > 1)
    assert len(view.tables[0].rows) == 4 * units
    assert len(figure.data) == 4 * min(units, 5) * samples


def test_a_unit_without_values_is_an_empty_panel() -> None:
    data = scaling_data()
    data["value"][:, 0] = numpy.nan
    data["proved"][:, 0] = numpy.nan
    view = scaling_view({"s": data})
    figure = view.figures["s-plateau"].figure
    assert sum(trace.showlegend for trace in figure.data) == 4
    assert view.tables[0].rows[0][5] == "-"
