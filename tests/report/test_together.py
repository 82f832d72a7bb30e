"""Several networks or runs on one scale: in one figure, in figures side by side, and in a table of differences."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from skipscope.report import write_page
from skipscope.report.charts import Series, axis, chart
from skipscope.report.comparison import comparison
from skipscope.report.figures import depth, profile, together
from skipscope.report.shared_axes import share_axes
from skipscope.report.trunk_map import trunk_maps
from skipscope.report.views import UnitNumbers, View
from skipscope.report.views.spectra import leading_view, spectra_view
from skipscope.report.views.view import NETWORKS_IN_SUMMARY
from tests.report.synthetic import spectra_data
from tests.report.test_page import saved
from tests.report.test_table import profile_data


def test_networks_with_the_same_units_share_a_figure() -> None:
    first, second = spectra_data(network="residual"), spectra_data(network="plain")
    other = spectra_data(units=3, network="another")
    view = spectra_view({"spectra-residual": first, "spectra-plain": second, "spectra-other": other})
    assert [name for name in view.figures if name.endswith("together")] == ["spectra-residual-together"]
    picture = view.figures["spectra-residual-together"]
    assert picture.caption.startswith("residual and plain on one scale.")
    figure = picture.figure
    assert {trace.name for trace in figure.data} == {"residual", "plain"}
    lost = next(trace for trace in figure.data if trace.name == "plain" and trace.yaxis == "y")
    units = second.isel(unit=(second["kind"] == "unit").values)
    assert lost.y == pytest.approx(units["share_zero"].mean("sample").values)
    assert lost.error_y.array == pytest.approx(units["share_zero"].std("sample").values)
    stage = next(trace for trace in figure.data if trace.name == "plain" and trace.yaxis == "y4")
    assert stage.y == pytest.approx([float(second["largest"].sel(unit="stage 3").mean())])
    assert figure.layout.yaxis2.matches == "y"  # units and stages on one scale


def test_leading_values_are_drawn_together_too() -> None:
    data = spectra_data().isel(index=slice(3)).rename(index="rank", bound="residual").drop_vars(["largest", "kind"])
    data = data.drop_vars([name for name in data.data_vars if str(name).startswith("share")])
    data = data.assign(converged=(("unit", "sample"), numpy.ones((7, 2), bool)))
    (trace,) = together({"a net": data}).data
    assert trace.y == pytest.approx(data["value"].isel(rank=0).mean("sample").values)
    assert leading_view({"leading": data}).figures


def test_one_sample_has_no_bars() -> None:
    one = spectra_data(samples=1)
    assert all(trace.error_y.array is None for trace in together({"a": one, "b": one}).data)
    assert depth(one).data[0].error_y.array is None


def test_attention_and_mlp_are_separate_curves() -> None:
    kinds = ["attention", "linear"] * 3
    data = spectra_data().assign_coords(branch=("unit", [*kinds, "other"]))
    names = {trace.meta["series"] for trace in depth(data, 2).data}
    assert names == {"s1, attention", "s2, attention", "s1, MLP", "s2, MLP"}
    attention = next(trace for trace in depth(data, 2).data if trace.name == "s1, attention")
    assert attention.x == pytest.approx([0, 2, 4])
    two = profile_data().assign_coords(branch=("unit", ["attention", "linear"]))
    assert {trace.name for trace in profile({"a net": two}).data} == {"a net, attention", "a net, MLP"}
    assert {trace.name for trace in profile({"a net": profile_data()}).data} == {"a net"}


def test_the_effective_rank_is_shown_with_its_cap() -> None:
    titles = [annotation.text for annotation in profile(profile_data()).layout.annotations]
    assert "effective rank of all entries, at most 3" in titles


def test_medians_have_bars_to_their_quartiles() -> None:
    trace = next(one for one in profile({"a": profile_data()}).data if one.yaxis == "y3")
    assert trace.y == pytest.approx([1.021, 1.021])
    assert trace.error_y.arrayminus == pytest.approx([0.0105, 0.0105])
    assert trace.error_y.array == pytest.approx([1.9895, 1.9895])


def test_networks_without_a_sentence_are_named() -> None:
    count = NETWORKS_IN_SUMMARY + 2
    view = spectra_view({f"spectra-{k}": spectra_data(network=f"net {k}") for k in range(count)})
    assert len(view.sentences) == NETWORKS_IN_SUMMARY + 1
    assert view.sentences[-1] == "Singular values: 2 more networks are in the tables below (net 8, net 9)."


# -- several runs


def curve(values: list[float], **more: object) -> object:
    return chart([Series("a", range(len(values)), values)], x={}, y=axis("y", **more), height=300)  # type: ignore[arg-type]


def test_figures_of_runs_have_the_same_axes() -> None:
    first, second = curve([1.0, 2.0]), curve([0.0, 5.0])
    share_axes([first, second])
    assert first.layout.yaxis.range == second.layout.yaxis.range == (-0.25, 5.25)  # type: ignore[attr-defined]


def test_a_logarithmic_axis_is_shared_where_all_values_are_positive() -> None:
    first, second = curve([1.0, 100.0], log=True), curve([1.0, 10.0])
    share_axes([first, second])
    assert second.layout.yaxis.type == "log"  # type: ignore[attr-defined]
    assert first.layout.yaxis.range == second.layout.yaxis.range == pytest.approx((-0.1, 2.1))  # type: ignore[attr-defined]
    third, fourth = curve([1.0, 100.0], log=True), curve([0.0, 10.0])
    share_axes([third, fourth])
    assert third.layout.yaxis.range is fourth.layout.yaxis.range is None  # type: ignore[attr-defined]


def test_a_range_that_is_set_stays() -> None:
    first, second = curve([0.1], range=[0, 1]), curve([0.2], range=[0, 1])
    share_axes([first, second])
    assert first.layout.yaxis.range == (0, 1)  # type: ignore[attr-defined]


def maps_of(values: dict[str, float], network: str = "a net") -> list[dict[str, object]]:
    return trunk_maps({}, [View(numbers=[UnitNumbers(network, "gain", values, scale="gain")])])


def test_differences_of_units_that_runs_have_in_common() -> None:
    first, second = maps_of({"a": 1.0, "b": 2.0, "c": 9.0}), maps_of({"b": 2.5, "a": 0.9})
    found = comparison(["before", "after"], [first, second])
    assert found is not None
    assert found.table.rows == [["gain", "after", "1.5", "1.7", "+0.2", "b", "2", "2.5"]]
    assert [list(trace.y) for trace in found.picture.figure.data] == [[1.0, 2.0], [0.9, 2.5]]
    assert found.picture.figure.layout.yaxis.title.text == "factor"


def test_no_differences_where_nothing_is_common() -> None:
    assert comparison(["a", "b"], [maps_of({"a": 1.0}), maps_of({"b": 1.0})]) is None
    assert comparison(["a"], [maps_of({"a": 1.0})]) is None
    assert comparison(["a", "b"], [maps_of({"a": 1.0}), []]) is None


def test_runs_are_compared_by_a_network_that_all_have() -> None:
    first = [*maps_of({"a": 1.0}, "plain"), *maps_of({"a": 2.0}, "residual")]
    found = comparison(["a", "b"], [first, maps_of({"a": 3.0}, "residual")])
    assert found is not None
    assert found.table.rows[0][2:4] == ["2", "3"]


def test_a_page_of_two_runs_has_their_differences(tmp_path: Path) -> None:
    runs = [saved(tmp_path / name, only=["perturbations"]) for name in "ab"]
    text = write_page(runs, tmp_path / "both.html").read_text()
    assert '<section id="differences">' in text
    assert "Differences between the runs" in text
    alone = write_page([tmp_path / "a"], tmp_path / "one.html").read_text()
    assert '<section id="differences">' not in alone
