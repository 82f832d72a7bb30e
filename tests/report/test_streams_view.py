"""The view of residual streams."""

from __future__ import annotations

import numpy
import xarray

from skipscope.report.views import views

VARIABLES = (
    "sinkhorn_residual",
    "row_gain",
    "column_gain",
    "product_row_gain",
    "product_column_gain",
    "product_second_value",
    "product_dobrushin",
    "branch_share",
)


def streams_data(network: str = "a net") -> xarray.Dataset:
    values = {name: (("unit", "sample"), numpy.arange(6.0).reshape(2, 3) / 10 + 0.5) for name in VARIABLES}
    coordinates = {"unit": ["h.0", "h.1"], "skip": ("unit", ["streams"] * 2), "stage": ("unit", [1, 1])}
    return xarray.Dataset(values, coordinates, {"measure": "streams", "network": network, "streams": 4})


def test_table_figure_sentence_and_map() -> None:
    (view,) = views({"streams": streams_data()})
    (table,) = view.tables
    assert table.rows == [["h.0", *["0.6"] * 8], ["h.1", *["0.9"] * 8]]
    assert "mixes 4 streams" in table.about
    figure = view.figures["streams"].figure
    assert len(figure.data) == 4
    assert list(figure.data[0].y) == [0.6, 0.9]
    assert view.sentences == [
        "On a net, 2 units mix 4 streams; the product of their matrices amplifies a stream at most 0.9 times, and its "
        "second singular value is 0.9."
    ]
    assert {one.title: one.scale for one in view.numbers}["row gain of the mixing matrix"] == "gain"


def test_two_networks_in_one_figure() -> None:
    (view,) = views({"a-streams": streams_data("a"), "b-streams": streams_data("b")})
    assert list(view.figures) == ["a-streams"]
    assert len(view.tables) == 2
