"""What a report shows of trajectories and of neural collapse."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import xarray

from skipscope.report.figures import collapse, steps, straightness, trajectories
from skipscope.report.figures.curves import PATHS_DRAWN, stages_with_steps
from skipscope.report.views import sections_of
from skipscope.report.views.collapse import collapse_view
from skipscope.report.views.trajectories import trajectories_view


def paths(*, stages: tuple[int, ...] = (4, 3, 1), samples: int = 6, network: str = "a net") -> xarray.Dataset:
    """stages: their numbers of states. Stages with fewer than two steps have no metrics."""
    random = numpy.random.default_rng(0)
    of_state = [stage for stage, count in enumerate(stages, 1) for _ in range(count)]
    of_step = [stage for stage, count in enumerate(stages, 1) for _ in range(count - 1)]
    measured = numpy.array([count > 2 for count in stages])[:, None]
    shape = (len(stages), samples)
    data = {
        "line_shape": numpy.where(measured, random.uniform(1, 2, shape), numpy.nan),
        "step_variation": numpy.where(measured, random.uniform(0, 1, shape), numpy.nan),
        "first_component": numpy.where(measured, random.uniform(0.5, 1, shape), numpy.nan),
        "chord_ratio": numpy.where(measured, random.uniform(1, 2, shape), numpy.nan),
        "zero_steps": numpy.zeros(shape, int),
    }
    return xarray.Dataset(
        {
            **{name: (("stage", "sample"), values) for name, values in data.items()},
            "step_norm": (("sample", "step"), random.uniform(1, 2, (samples, len(of_step)))),
            "cosine": (("sample", "step"), random.uniform(0, 1, (samples, len(of_step)))),
            "projection": (
                ("plane", "sample", "state", "axis"),
                random.standard_normal((2, samples, len(of_state), 2)),
            ),
            "principal_share": ("stage", random.uniform(0.5, 1, len(stages))),
        },
        {
            "stage": list(range(1, len(stages) + 1)),
            "shape": ("stage", ["4 x 2"] * len(stages)),
            "sample": [10 * k for k in range(samples)],
            "label": ("sample", [11, 2] * (samples // 2) + [2] * (samples % 2)),
            "state": [f"unit {k}" for k in range(len(of_state))],
            "state_stage": ("state", of_state),
            "step": [f"unit {k}" for k in range(len(of_step))],
            "step_stage": ("step", of_step),
            "plane": ["random", "principal"],
            "axis": ["first", "second"],
        },
        {"measure": "trajectories", "network": network},
    )


def layers(*, count: int = 4, network: str = "a net") -> xarray.Dataset:
    random = numpy.random.default_rng(1)
    names = ("nc1", "cdnv", "nc2_equinorm", "nc2_equiangular", "nc2_maximal_angle", "nearest_mean_accuracy")
    return xarray.Dataset(
        {name: ("layer", random.uniform(0.1, 1, count)) for name in names}
        | {"rank": ("layer", [9] * count), "size": ("layer", [64] * count), "samples": ("label", [20] * 10)}
        | {"nc3": 0.5, "nc4": 0.125, "accuracy": 0.75},
        {"layer": [*(f"unit {k}" for k in range(count - 1)), "entry of head"], "label": list(range(10))},
        {"measure": "collapse", "network": network, "notes": "a note"},
    )


def with_name(figure: Any, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def test_every_sample_is_a_polyline_of_its_class_in_both_planes() -> None:
    data = paths()
    figure = trajectories(data)
    assert stages_with_steps(data) == [1, 2]
    titles = [note.text for note in figure.layout.annotations]
    assert titles == [f"stage {stage}, {plane} plane" for stage in (1, 2) for plane in ("random", "principal")]
    assert [trace.name for trace in figure.data[:2]] == ["class 2", "class 11"]
    first = with_name(figure, "class 11")[0]  # samples 0, 2, 4 with a gap behind each
    expected = data["projection"].sel(plane="random").values[[0, 2, 4], :4]
    drawn = numpy.stack([first.x, first.y], 1).reshape(3, 5, 2)
    numpy.testing.assert_allclose(drawn[:, :4], expected)
    assert numpy.isnan(drawn[:, 4]).all()
    assert first.text[0] == "sample 0, unit 0"
    assert first.mode == "lines+markers"
    second = with_name(figure, "class 2")[3]
    numpy.testing.assert_allclose(second.x[:3], data["projection"].sel(plane="principal").values[1, 4:7, 0])
    assert sum(bool(trace.showlegend) for trace in figure.data) == 2


def test_ten_classes_have_ten_looks() -> None:
    data = paths(stages=(3,), samples=10).assign_coords(label=("sample", list(range(10))))
    drawn = [trace for trace in trajectories(data).data if trace.showlegend]
    assert [trace.name for trace in drawn] == [f"class {k}" for k in range(10)]
    assert len({(trace.line.color, trace.marker.symbol) for trace in drawn}) == 10


def test_of_many_samples_some_are_drawn_and_the_caption_says_so() -> None:
    view = trajectories_view({"far": paths(samples=250)})
    picture = view.figures["far-paths"]
    assert f"({PATHS_DRAWN} of them drawn, evenly spaced)" in picture.caption
    assert sum(len(trace.x) for trace in picture.figure.data[:2]) == PATHS_DRAWN * 5


def test_the_caption_has_the_line_shape_and_the_share_of_the_plane() -> None:
    data = paths()
    caption = trajectories_view({"t": data}).figures["t-paths"].caption
    low, middle, high = numpy.quantile(data["line_shape"][0], [0.25, 0.5, 0.75])
    assert f"stage 1 {middle:.3g} [{low:.3g}, {high:.3g}]" in caption
    assert f"{float(data['principal_share'][1]):.1%}" in caption
    assert "A random plane can hide curvature" in caption


def test_steps_and_straightness_are_medians() -> None:
    data = paths()
    norms, cosines = steps(data).data
    numpy.testing.assert_allclose(norms.y, numpy.median(data["step_norm"], 0))
    numpy.testing.assert_allclose(cosines.y, numpy.median(data["cosine"], 0))
    figure = straightness({"one": data, "two": paths(network="another")})
    assert len(figure.data) == 8
    numpy.testing.assert_allclose(figure.data[0].y[:2], numpy.median(data["line_shape"][:2], 1))


def test_the_table_of_stages() -> None:
    data = paths()
    data["zero_steps"][0, 1] = 2
    (table,) = trajectories_view({"t": data}).tables
    assert table.title == "Trajectories of a net"
    assert [row[:2] for row in table.rows] == [["1: 4 x 2", "3"], ["2: 4 x 2", "2"], ["3: 4 x 2", "0"]]
    assert table.rows[0][-1] == "2"
    assert table.rows[2][2:6] == ["-"] * 4


@pytest.mark.parametrize("stages", [(1,), (2,), (5,), (1, 1), (3, 3)])
@pytest.mark.parametrize("samples", [1, 3])
def test_few_states_and_few_samples(stages: tuple[int, ...], samples: int) -> None:
    view = trajectories_view({"t": paths(stages=stages, samples=samples)})
    assert ("t-paths" in view.figures) == (max(stages) > 1)
    assert ("t-straightness" in view.figures) == (stages == (3, 3))
    assert ("no stage has two steps" in view.sentences[0]) == (max(stages) < 3)


def test_without_projections_and_labels() -> None:
    data = paths()
    assert "t-paths" not in trajectories_view({"t": data.drop_dims("plane")}).figures
    figure = trajectories(data.drop_vars("label"))
    assert {trace.name for trace in figure.data} == {"samples"}


def test_a_path_that_closes_is_shown_as_infinite() -> None:
    data = paths()
    data["line_shape"][0, 0] = numpy.inf
    assert trajectories_view({"t": data}).tables[0].rows[0][2] != "-"


def test_collapse_by_layer_and_of_the_classifier() -> None:
    data = layers()
    view = collapse_view({"c": data})
    table, last = view.tables
    assert [row[0] for row in table.rows] == ["unit 0", "unit 1", "unit 2", "entry of head"]
    assert table.rows[1][1] == f"{float(data['nc1'][1]):.3g}"
    assert "200 samples of 10 classes" in table.about
    assert table.about.endswith("Notes: a note.")
    assert last.rows == [["a net", f"{float(data['nc1'][-1]):.3g}", "0.5", "0.125", "0.75"]]
    assert "12.5% of 200 samples" in view.sentences[0]
    numpy.testing.assert_allclose(view.figures["c"].figure.data[0].y, data["nc1"])
    assert "c" not in collapse_view({"c": layers(count=1)}).figures


def test_networks_with_the_same_layers_share_a_figure() -> None:
    view = collapse_view({"one": layers(), "two": layers(network="another"), "three": layers(count=6, network="third")})
    assert set(view.figures) == {"one", "three"}
    assert {trace.name for trace in view.figures["one"].figure.data} == {"a net", "another"}
    assert len(collapse({"a": layers()}).data) == 4


def test_features_without_a_number() -> None:
    data = layers()
    data["nc1"][:] = numpy.nan
    view = collapse_view({"c": data})
    assert "all classes have the same mean" in view.sentences[0]


def test_both_have_a_place_in_the_report() -> None:
    assert [section.measure for section in sections_of({"c": layers(), "t": paths()})] == ["trajectories", "collapse"]
