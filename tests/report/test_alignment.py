"""What a report shows of residual alignment."""

from __future__ import annotations

import numpy
import pytest
import xarray

from skipscope.errors import InputError
from skipscope.report.figures import alignment, coupling, decay, energy
from skipscope.report.figures.alignment import UNITS_IN_GRID
from skipscope.report.style import GREY
from skipscope.report.views import views
from skipscope.report.views.alignment import alignment_view


def alignment_data(*, units: int = 6, samples: int = 3, k: int = 4, network: str = "a net") -> xarray.Dataset:
    """Two stages of equal length whose units fit each other, s_1 = 1 / (2 + depth); the second did not converge."""
    random = numpy.random.default_rng(0)
    stage = numpy.arange(units) * 2 // units
    fits = stage[:, None] == stage[None]
    pair, one = ("unit", "other", "sample"), ("unit", "sample")
    grid = random.standard_normal((units, units, samples, k, k)).astype(numpy.float32)
    grid[~fits] = numpy.nan
    value = (1 / (3 + numpy.arange(units)))[:, None, None] * 0.7 ** numpy.arange(k + 5) * numpy.ones((1, samples, 1))
    converged = numpy.ones(value.shape, bool)
    converged[1, 0, 2] = False
    repeated = numpy.zeros(value.shape, bool)
    repeated[0, 0, :2] = True
    repeated[1, 0, k:] = True  # after those that are used

    def pairs(low: float, high: float) -> tuple[tuple[str, ...], numpy.ndarray]:
        return pair, numpy.where(fits[..., None], random.uniform(low, high, (units, units, samples)), numpy.nan)

    def alone(low: float, high: float) -> tuple[tuple[str, ...], numpy.ndarray]:
        return one, random.uniform(low, high, (units, samples))

    names = [f"stage{1 + s}.{i}" for i, s in enumerate(stage)]
    return xarray.Dataset(
        {
            "value": ((*one, "rank"), value),
            "residual": ((*one, "rank"), numpy.full(value.shape, 1e-13)),
            "converged": ((*one, "rank"), converged),
            "repeated": ((*one, "rank"), repeated),
            "ujv": ((*pair, "row", "column"), grid),
            "vju": ((*pair, "row", "column"), 2 * grid),
            **{f"coupling_{way}": pairs(0.3, 0.9) for way in ("ujv", "ujv_signed", "vju", "vju_signed")},
            "chance": pairs(0.96, 0.98),
            "chance_signed": pairs(1.0, 1.1),
            "u1v1": alone(0.2, 0.8),
            "energy": alone(0.9, 1),
            "energy_error": alone(0, 1e-3),
            "gap": alone(0, 0.1),
            "large": (one, numpy.full((units, samples), 4.0)),
            "numerical_rank": (one, numpy.full((units, samples), numpy.nan)),
            "k_used": (one, numpy.full((units, samples), k)),
            "exact": (one, numpy.ones((units, samples), bool)),
            "entries": ("unit", [64] * units),
            "exits": ("unit", [64] * units),
        },
        {"unit": names, "other": names, "stage": ("unit", stage + 1), "sample": [10 * b for b in range(samples)]},
        {"measure": "alignment", "network": network, "k": k, "classes": k},
    )


def test_panels_are_relative_to_their_own_largest_entry_and_blank_where_nothing_fits() -> None:
    data = alignment_data()
    figure = alignment(data)
    (picture,) = [trace for trace in figure.data if trace.type == "heatmap"]
    drawn = numpy.asarray(picture.z)
    assert drawn.shape == (24, 24)
    panel = abs(data["ujv"].values[0, 1, 0])
    numpy.testing.assert_allclose(drawn[:4, 4:8], panel / panel.max(), rtol=1e-6)
    assert numpy.isnan(drawn[:12, 12:]).all()
    numpy.testing.assert_allclose(drawn[12:, 12:].reshape(3, 4, 3, 4).max((1, 3)), 1)
    other = numpy.asarray(alignment(data, "vju", 2).data[0].z)
    panel = abs(data["vju"].values[0, 1, 2])
    numpy.testing.assert_allclose(other[:4, 4:8], panel / panel.max(), rtol=1e-6)
    assert len(figure.data) == 2  # the picture and the lines between panels
    assert list(figure.layout.yaxis.range) == [23.5, -0.5]  # the first unit on top


def test_sixteen_units_make_a_light_figure_and_more_are_thinned() -> None:
    figure = alignment(alignment_data(units=16, k=10))
    assert figure.data[0].z.shape == (160, 160)
    assert len(figure.to_json()) < 200_000
    many = alignment_data(units=40, k=3)
    assert alignment(many).data[0].z.shape == (3 * UNITS_IN_GRID, 3 * UNITS_IN_GRID)
    caption = alignment_view({"many": many}).figures["many-ujv"].caption
    assert f"{UNITS_IN_GRID} of 40 units, evenly spaced" in caption


@pytest.mark.parametrize(
    ("way", "sample", "message"), [("jvu", 0, "way='jvu'"), ("ujv", 3, "sample=3: expected a place below 3")]
)
def test_bad_choices_are_refused(way: str, sample: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        alignment(alignment_data(), way, sample)


def test_without_grids_there_is_no_picture_of_them() -> None:
    data = alignment_data().drop_vars(["ujv", "vju"])
    with pytest.raises(InputError, match="grids=True"):
        alignment(data)
    assert list(alignment_view({"a": data}).figures) == ["a-coupling", "a-decay", "a-energy"]


def test_couplings_are_means_over_the_samples() -> None:
    data = alignment_data()
    figure = coupling(data)
    for trace, way in zip(figure.data, ("ujv", "vju"), strict=True):
        numpy.testing.assert_allclose(trace.z, data[f"coupling_{way}"].mean("sample"), rtol=1e-6)
    assert figure.layout.coloraxis.cmin == 0


def test_values_up_to_the_classes_have_a_colour_of_their_own_and_the_line_its_numbers() -> None:
    data = alignment_data(units=12)
    figure = decay(data)
    numpy.testing.assert_allclose(figure.data[0].y, 3 + numpy.arange(12))
    line = figure.data[1]
    assert "slope 1" in line.name
    assert "R² 1.000" in line.name
    assert list(line.x) == [4, 12]
    numpy.testing.assert_allclose(line.y, [6, 14])
    curves = figure.data[2:]
    assert len(curves) == 9
    assert len({curve.line.color for curve in curves[:4]}) == len({curve.line.color for curve in curves[4:]}) == 1
    assert curves[0].line.color != curves[4].line.color
    assert sum(bool(curve.showlegend) for curve in curves) == 2
    assert curves[0].marker.symbol[:2] == ("circle", "circle-open")
    assert figure.data[0].error_y.color == GREY  # Plotly takes no colour per bar


def test_the_caption_says_how_many_units_the_line_leaves_out() -> None:
    for units, words in ((4, "leaves out the first unit:"), (12, "leaves out the first 3 units:")):
        assert words in alignment_view({"a": alignment_data(units=units)}).figures["a-decay"].caption


def test_energy_has_a_marker_a_sample_and_medians() -> None:
    data = alignment_data()
    figure = energy(data)
    medians = [trace for trace in figure.data if trace.name == "median"]
    numpy.testing.assert_allclose(medians[1].y, data["gap"].median("sample"))
    assert sum(trace.name == "one sample" for trace in figure.data) == 2 * 3


def test_tables_have_pairs_units_and_lines() -> None:
    data = alignment_data(units=12)
    (view,) = views({"alignment": data})
    pairs, units, lines = view.tables
    assert [row[:3] for row in pairs.rows][:4] == [
        ["all, i ≠ j", "U'JV", "60"],
        ["all, i ≠ j", "V'JU", "60"],
        ["neighbours", "U'JV", "20"],
        ["neighbours", "V'JU", "20"],
    ]
    assert "±" in pairs.rows[0][3]
    assert [row[0] for row in units.rows][:2] == ["stage1.0", "stage1.1 *"]
    assert units.about.endswith("their vectors are not unique: in stage1.0.")
    assert [row[1] for row in lines.rows] == ["9", "3"]
    assert [float(row[2]) for row in lines.rows] == pytest.approx([1, 1])
    (sentence,) = view.sentences
    assert "12 units, at 3 samples" in sentence
    assert "of chance" in sentence
    assert "Not converged: stage1.1" in sentence
    assert {one.title for one in view.numbers} >= {"u1·v1 of the branch", "distance from alignment with the neighbours"}
    assert view.curves[0].of["stage1.1"][1].name == "sample 10 *"


def test_one_sample_and_two_units_read_well() -> None:
    data = alignment_data(units=2, samples=1)
    view = alignment_view({"a": data})
    assert "fit no other unit's" in view.sentences[0]
    assert "at 1 sample, " in view.sentences[0]
    assert "No line: 2 units are too few" in view.figures["a-decay"].caption
    assert all("nan" not in cell for table in view.tables for row in table.rows for cell in row)


def test_whole_units_are_called_so() -> None:
    data = alignment_data().assign_coords(part=("unit", ["unit"] * 6))
    view = alignment_view({"a": data})
    assert "the Jacobians of 6 units, at 3 samples" in view.sentences[0]
    assert view.numbers[0].title == "largest singular value of the unit"
    assert "the Jacobians of the branches of 6 units" in alignment_view({"a": alignment_data()}).sentences[0]


def test_without_a_chance_level_it_is_not_spoken_of() -> None:
    data = alignment_data().drop_vars(["chance", "chance_signed"])
    view = alignment_view({"a": data})
    assert "chance" not in view.sentences[0]
    assert "not measured" in view.figures["a-coupling"].caption
    assert {row[5] for row in view.tables[0].rows} == {"-"}
