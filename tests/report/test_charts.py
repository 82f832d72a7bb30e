"""The grammar of charts and tables: what follows from a declaration."""

from __future__ import annotations

from dataclasses import replace

import numpy
import xarray

from skipscope.report.charts import Series, axis, chart, lines, reference, thin_lines, titled_first
from skipscope.report.figures import profile as plot_profile
from skipscope.report.style import COLOURS, GREY, members
from skipscope.report.table import TableOf, table_of
from tests.findings.test_findings import profile


def trees() -> xarray.Dataset:
    """Heights (tree, year) and a kind per tree; two trees are oaks."""
    return xarray.Dataset(
        {
            "height": (("tree", "year"), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
            "width": (("tree", "year"), [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]),
            "kind": ("tree", ["oak", "elm", "oak"]),
            "age": ("tree", [10, 20, 30]),
        },
        {"tree": ["a", "b", "c"], "year": [2001, 2002]},
        {"place": "the wood"},
    )


def test_members_of_a_dimension_and_of_a_variable() -> None:
    assert [(name, float(part["age"])) for name, part in members(trees(), "tree")] == [("a", 10), ("b", 20), ("c", 30)]
    assert [(kind, part["age"].values.tolist()) for kind, part in members(trees(), "kind")] == [
        ("oak", [10, 30]),
        ("elm", [20]),
    ]
    assert [name for name, _ in members(trees(), "")] == [""]


def test_one_series_per_member_and_one_panel_per_variable() -> None:
    panels = {"height": "heights", "width": "widths"}
    found = list(lines(trees(), "year", panels, "%{y}", by="tree", name="tree {0}, {age} years"))
    assert [(one.name, one.panel) for one in found[:3]] == [
        ("tree a, 10 years", 0),
        ("tree a, 10 years", 1),
        ("tree b, 20 years", 0),
    ]
    figure = chart(
        found, panels=list(panels.values()), x=axis("year"), y=titled_first("metres", 2, log=True), height=300
    )
    assert [trace.showlegend for trace in figure.data] == [True, False] * 3
    assert [trace.line.color for trace in figure.data[::2]] == list(COLOURS[:3])
    assert figure.data[1].xaxis == "x2"
    assert [annotation.text for annotation in figure.layout.annotations] == ["heights", "widths"]
    assert (figure.layout.yaxis.title.text, figure.layout.yaxis2.title.text) == ("metres", None)
    assert figure.layout.yaxis.type == figure.layout.yaxis2.type == "log"
    assert figure.layout.height == 300


def test_variables_without_members_are_series_and_points_have_texts() -> None:
    one = trees().isel(tree=0)
    height, width = lines(one, "year", {"height": "how high", "width": "how wide"}, "%{text}", text="in {year}")
    assert (height.name, width.name, height.panel, width.panel) == ("how high", "how wide", 0, 0)
    assert height.text == ["in 2001", "in 2002"]
    (custom,) = lines(one, "year", {"height": ""}, "", custom=("width",))
    assert custom.more["customdata"].tolist() == [[0.1], [0.2]]


def test_one_panel_per_member_of_a_dimension() -> None:
    in_panels = list(lines(trees(), "age", "width", "", panels="year", by="kind"))
    assert [(one.name, one.panel, one.y.values.tolist()) for one in in_panels] == [
        ("oak", 0, [0.1, 0.5]),
        ("elm", 0, [0.3]),
        ("oak", 1, [0.2, 0.6]),
        ("elm", 1, [0.4]),
    ]


def test_hover_texts_name_the_series() -> None:
    series = [Series("oak", [1], [2], "%{y}"), Series("elm", [1], [2], "{name}: %{y}", heading="")]
    oak, elm = chart(series, x={}, y={}, height=300).data
    assert oak.hovertemplate == "oak<br>%{y}<extra></extra>"
    assert elm.hovertemplate == "elm: %{y}<extra></extra>"
    assert oak.showlegend is None


def test_bands_references_and_thin_lines() -> None:
    x = numpy.array([0.0, 1.0, 2.0])
    low, high = x - 1, x + 1
    low[1] = numpy.nan
    rows = {"first": x, "second": 2 * x}
    series = [reference(x, x, "as expected"), reference(x, x), *thin_lines("one tree", x, rows, "%{y}")]
    named, unnamed, first, second, band, curve = chart(
        [*series, Series("mean", x, x, band=(low, high))], x={}, y={}, height=300
    ).data
    assert (named.name, named.showlegend, named.hoverinfo, named.line.color) == ("as expected", None, "skip", GREY)
    assert (unnamed.name, unnamed.showlegend) == (None, False)
    assert (first.showlegend, second.showlegend, second.meta) == (True, False, {"series": "second"})
    assert band.x.tolist() == [0, 2, 2, 0]  # no band where an edge is NaN
    assert band.legendgroup == curve.legendgroup == "mean"


def test_columns_of_panels_and_an_axis_per_panel() -> None:
    series = [Series("a", [1], [1], panel=panel) for panel in range(3)]
    axes = [axis(f"x{panel}") for panel in range(3)]
    figure = chart(series, panels=["p", "q", "r"], columns=2, x=axes, y={"range": [0, 1]}, height=300)
    assert [figure.layout[name].title.text for name in ("xaxis", "xaxis2", "xaxis3")] == ["x0", "x1", "x2"]
    assert figure.layout.yaxis3.range == (0, 1)


def test_a_table_of_all_rows_of_one_dimension() -> None:
    declared = TableOf(
        "Trees of {place}",
        {"kind": "kind", "age": "age", "high": lambda here: f"{float(here['age']):.1f} m"},
        "All {number_of_tree} of them.",
    )
    table = declared(trees()[["kind", "age"]])
    assert (table.title, table.about, table.names) == ("Trees of the wood", "All 3 of them.", 1)
    assert table.columns == ["kind", "age", "high"]
    assert table.rows[0] == ["oak", "10", "10.0 m"]


def test_a_table_with_rows_of_dimensions_or_groups() -> None:
    data = trees()
    by_tree = table_of(data, "Heights", {"high": "height"}, "{braces} are text", rows={"tree": "tree", "year": "year"})
    assert by_tree.columns == ["tree", "year", "high"]
    assert by_tree.rows[:2] == [["a", "2001", "1"], ["a", "2002", "2"]]
    assert by_tree.about == "{braces} are text"
    hidden = table_of(data, "Heights", {"high": "height"}, "", rows={"tree": "tree", "year": ""})
    assert (hidden.columns, hidden.rows[1]) == (["tree", "high"], ["a", "2"])
    kinds = table_of(data, "Kinds", {"oldest": ("age", "max")}, "", rows={"kind": "kind"})
    assert kinds.rows == [["oak", "30"], ["elm", "20"]]


def test_a_name_with_markup_does_not_cost_a_figure_its_panels() -> None:
    figure = chart([Series("<img src=x>", [1, 2], [3, 4], panel=1)], panels=["left", "right"], x={}, y={}, height=300)
    assert figure.add_hline(y=3.5, row=1, col=2).layout.shapes[0].yref == "y2"
    assert "<img" not in figure.to_json()


def test_bars_have_the_colour_of_their_place_and_no_line() -> None:
    (bar,) = chart([Series("counts", ["a", "b"], [3, 4], mode="bars", place=2)], x={}, y={}, height=300).data
    assert (bar.type, bar.marker.color, list(bar.y)) == ("bar", COLOURS[2], [3, 4])


def test_error_bars_are_grey_only_where_points_have_colours_of_their_own() -> None:
    one = Series("a", [1, 2], [1.0, 2.0], mode="markers").with_error(numpy.array([0.1, 0.2]))
    several = replace(one, more={"marker": {"color": list(COLOURS[:2])}})
    figures = [chart([each], x=axis("x"), y=axis("y"), height=300) for each in (one, several)]
    assert [figure.data[0].error_y.color for figure in figures] == [None, GREY]


def test_small_numbers_are_powers_of_ten_on_every_axis() -> None:
    figure = chart([Series("a", [0, 1], [1e-4, 5e-4])], height=300, x={}, y={})
    assert (figure.layout.xaxis.exponentformat, figure.layout.yaxis.exponentformat) == ("power", "power")


def test_curves_by_kind_of_branch_name_the_network_only_where_there_are_several() -> None:
    data = profile().assign_coords(branch=("unit", ["attention", "linear"] * 4))
    alone, several = plot_profile({"the model": data}), plot_profile({"first": data, "second": data})
    assert list(dict.fromkeys(trace.name for trace in alone.data)) == ["attention", "MLP"]
    assert list(dict.fromkeys(trace.name for trace in several.data)) == [
        "first, attention",
        "first, MLP",
        "second, attention",
        "second, MLP",
    ]
