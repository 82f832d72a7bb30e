"""What a report shows of perturbations."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from skipscope.report.figures import growth, prediction, projections
from skipscope.report.figures.stability import IMAGES_DRAWN, binned, stage_boundaries
from skipscope.report.views import views
from skipscope.report.views.stability import stability_view
from tests.report.synthetic import KINDS, stability_data


def traces(figure: Any, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def test_every_image_is_a_line_and_the_median_is_theirs() -> None:
    data = stability_data()
    figure = growth(data)
    assert len(traces(figure, "one image")) == 2 * data.sizes["sample"]
    for kind, line in zip(KINDS, traces(figure, "median"), strict=True):
        numpy.testing.assert_allclose(line.y, numpy.median(data["rms"].sel(kind=kind), axis=1))
        assert list(line.text) == list(data["state"].values)
    numpy.testing.assert_allclose(traces(figure, "one image")[1].y, data["rms"][0, :, 1])
    assert figure.layout.yaxis.type == figure.layout.yaxis2.type == "log"


def test_states_that_enter_a_new_stage_are_marked_in_every_panel() -> None:
    data = stability_data()
    assert stage_boundaries(data) == [2, 4]
    assert [shape.x0 for shape in growth(data).layout.shapes] == [2, 4, 2, 4]
    assert stage_boundaries(data.drop_vars("stage")) == []


def test_the_last_state_is_the_exit_whatever_it_is_called() -> None:
    data = stability_data()
    names = [*data["unit"].values, "behind the last unit"]
    ticks = growth(data.assign_coords(state=names)).layout.xaxis.ticktext
    assert ticks == growth(data).layout.xaxis.ticktext == (*data["unit"].values, "exit")


def test_of_many_images_some_are_drawn_and_the_caption_says_so() -> None:
    data = stability_data(samples=100)
    view = stability_view({"far": data})
    picture = view.figures["far-growth"]
    caption, figure = picture.caption, picture.figure
    assert f"{IMAGES_DRAWN} of 100, evenly spaced" in caption
    assert "median of 100 images" in caption
    assert len(traces(figure, "one image")) == 2 * IMAGES_DRAWN
    numpy.testing.assert_allclose(traces(figure, "median")[0].y, numpy.median(data["rms"][0], axis=1))


def test_points_are_predicted_against_actual_growth_by_stage() -> None:
    data = stability_data()
    figure = prediction(data)
    for kind, points in zip(KINDS, traces(figure, "from stage2.2"), strict=True):
        numpy.testing.assert_allclose(points.x, data["predicted"].sel(kind=kind)[2:4].values.ravel())
        numpy.testing.assert_allclose(points.y, data["actual"].sel(kind=kind)[2:4].values.ravel())
        assert points.text[1] == "stage2.2, image 10"
    for line, way in (("actual", "actual"), ("predicted", "predicted")):
        numpy.testing.assert_allclose(traces(figure, line)[1].y, numpy.median(data[way].sel(kind="random"), axis=1))
    assert figure.layout.xaxis3.range == figure.layout.yaxis3.range == figure.layout.yaxis4.range


def test_growth_of_very_different_sizes_has_logarithmic_axes() -> None:
    data = stability_data()
    data["actual"][0, 0, 0] = 100
    figure = prediction(data)
    assert figure.layout.xaxis3.type == figure.layout.yaxis3.type == figure.layout.yaxis.type == "log"


def test_caption_has_median_and_quartiles_of_the_ratio() -> None:
    data = stability_data()
    data["actual"][0, 0, 0] = 0  # has no ratio
    data["predicted"][1] = data["actual"][1]
    ratio = (data["predicted"][0] / data["actual"][0]).values.ravel()[1:]
    caption = stability_view({"s": data}).figures["s-prediction"].caption
    low, middle, high = numpy.quantile(ratio, [0.25, 0.5, 0.75])
    assert f"adversarial {middle:.3f} [{low:.3f}, {high:.3f}]; random 1.000 [1.000, 1.000]" in caption


def test_projections_have_both_kinds_and_singular_values_on_a_second_axis() -> None:
    data = stability_data()
    figure = projections(data)
    points = [trace for trace in figure.data if trace.mode == "markers"]
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert [trace.name for trace in points] == KINDS * 2
    first = numpy.abs(data["projection"][0, 0].values)
    numpy.testing.assert_allclose(points[0].y, first.ravel())
    assert list(points[0].x) == [*range(1, 41)] * data.sizes["sample"]
    assert max(points[2].x) == 20  # the other unit has half as many values
    spectra = [line for line in lines if line.name.startswith("singular value")]
    assert [line.yaxis for line in spectra] == ["y2", "y4"]
    numpy.testing.assert_allclose(spectra[0].y, data["singular_value"][0, 0])
    assert numpy.isfinite(spectra[1].y).all()


def test_bins_are_root_mean_squares_and_leading_ones_stand_alone() -> None:
    alpha = numpy.random.default_rng(0).uniform(0, 1, (3, 1000))
    alpha[1] = numpy.nan
    centres, sizes = binned(alpha)
    assert centres[:3].tolist() == [1, 2, 3]
    numpy.testing.assert_allclose(sizes[1], numpy.sqrt((alpha[0, 1] ** 2 + alpha[2, 1] ** 2) / 2))
    assert len(centres) <= 30
    numpy.testing.assert_allclose(binned(numpy.full((2, 700), 0.3))[1], 0.3)


def test_long_projections_are_thinned_and_keep_the_leading_ten() -> None:
    figure = projections(stability_data(length=4000, samples=10))
    for trace in figure.data:
        if trace.mode == "markers":
            assert len(trace.x) <= 700
            assert set(range(1, 11)) <= set(trace.x)


def test_the_table_has_medians_and_shares_where_projected() -> None:
    data = stability_data()
    data["converged"][1, 0, 3] = False
    (table,) = stability_view({"s": data}).tables
    assert table.title == "Growth of perturbations of a net"
    assert list(table.columns[:3]) == ["unit", "growth, adversarial", "growth, random"]
    rows = {row[0]: row for row in table.rows}
    assert len(rows) == 6
    assert rows["stage1.0"][1] == f"{float(numpy.median(data['actual'][0, 0])):.3g}"
    assert rows["stage1.0"][6] == f"{float(numpy.median(data['share_top10'][1, 0])):.3g}"
    assert rows["stage1.1"][5:] == ["-", "-"]
    assert "stage3.5 *" in rows
    assert "* marks" in table.about


@pytest.mark.parametrize(
    ("units", "samples", "projected"), [(1, 1, ()), (1, 1, (0,)), (3, 1, (2,)), (1, 5, (0,)), (6, 2, (1, 2, 4))]
)
def test_few_units_few_samples_and_no_projection(units: int, samples: int, projected: tuple[int, ...]) -> None:
    data = stability_data(units=units, samples=samples, projected=projected)
    view = stability_view({"s": data})
    assert ("s-projections" in view.figures) == bool(projected)
    assert len(view.tables[0].rows) == units
    assert len(view.tables[0].columns) == (7 if projected else 5)
    assert len(view.tables[0].rows[0]) == len(view.tables[0].columns)


def test_a_projected_unit_outside_of_the_measured_ones_has_a_row() -> None:
    data = stability_data()
    data = data.isel(unit=slice(1, None), state=slice(1, None))
    rows = stability_view({"s": data}).tables[0].rows
    assert rows[-1][:5] == ["stage1.0", "-", "-", "-", "-"]
    assert rows[-1][5] != "-"


def test_missing_values_are_left_out() -> None:
    data = stability_data()
    for name in ("rms", "actual", "predicted"):
        data[name][0, 1] = numpy.nan
        data[name][1, :, 0] = numpy.nan
    data["projection"][0, 0] = numpy.nan
    data["projection"][1, 1] = numpy.nan
    view = stability_view({"s": data})
    assert view.tables[0].rows[1][1] == "-"
    assert view.tables[0].rows[1][2] != "-"
    everything = stability_view({"s": data.where(data["kind"] == "none")})
    assert set(everything.figures) == set(view.figures)
    assert everything.tables[0].rows[0][1:3] == ["-", "-"]


def test_datasets_of_one_network_have_captions_of_their_own() -> None:
    found = views({"near": stability_data(), "far": stability_data(), "other": stability_data(network="another")})
    captions = [picture.caption for picture in found[0].figures.values()]
    assert len(set(captions)) == 9
    titles = ["Growth of perturbations of a net (near)", "Growth of perturbations of a net (far)"]
    assert [table.title for table in found[0].tables] == [*titles, "Growth of perturbations of another"]
