"""What a report shows of residual alignment in trained networks, and of neural collapse along training."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import xarray

from skipscope.papers.a.figures.emergence import (
    PANELS,
    collapse_in_training,
    counterfactuals,
    emergence,
    last_values,
    values_by_case,
)
from skipscope.papers.a.views.emergence import COLUMNS, collapse_along_view, emergence_view, population_view
from skipscope.report.views import sections_of

EPOCHS = (0, 5, 15, 38, 100, 175, 250)


def a_case(
    title: str = "",
    *,
    network: str = "type1-mnist-w64-b16",
    data: str = "mnist, 3000 samples",
    decay: float = 5e-3,
    end: dict[str, float] | None = None,
    seeds: int = 3,
    epochs: tuple[int, ...] = EPOCHS,
    units: int = 16,
    classes: int = 10,
) -> xarray.Dataset:
    """Quantities that go from those of a random network to aligned ones, or to `end`; 1 / s_1 is the unit's number.

    Seeds differ by 0.01, epochs by equal steps.
    """
    ends = {
        "line_shape": (3.3, 1.07),
        "step_variation": (1.07, 0.2),
        "over_chance_adjacent": (1.0, 0.5),
        "over_chance_all": (1.0, 0.6),
        "swapped": (0.97, 0.8),
        "u1v1": (0.0, 0.5),
        "energy": (0.75, 0.97),
        "gap": (0.5, 0.02),
        "r_squared": (0.4, 0.95),
        "slope": (0.01, 0.9),
        "large": (40.0, 9.0),
        "train_accuracy": (0.1, 0.99),
        "test_accuracy": (0.1, 0.9),
    }
    ends |= {key: (ends[key][0], value) for key, value in (end or {}).items()}
    way, offset = numpy.linspace(0, 1, len(epochs)), 0.01 * numpy.arange(seeds)[:, None]
    values = numpy.zeros((seeds, len(epochs), units, classes + 5))
    values[..., :classes] = 1 / numpy.arange(1, units + 1)[:, None] / numpy.arange(1, classes + 1)
    return xarray.Dataset(
        {
            **{name: (("seed", "epoch"), low + (high - low) * way + offset) for name, (low, high) in ends.items()},
            "value": (("seed", "epoch", "unit", "rank"), values),
        },
        {"seed": range(seeds), "epoch": list(epochs), "unit": [f"stage1.{k}" for k in range(units)]},
        {
            "measure": "emergence",
            "title": title or f"{network.partition('-')[0]} on {data}",
            "changed": int(bool(title)),
            "network": network,
            "data": data,
            "classes": classes,
            "epochs": epochs[-1],
            "rate": 0.1,
            "weight_decay": decay,
            "decay_budget": 14.4,
            "width": 64,
            "images": 10,
        },
    )


def changes() -> dict[str, xarray.Dataset]:
    """The base first, as a run of A.counterfactuals has it."""
    return {
        "type1-mnist-w64-b16-3f2a91c0": a_case(),
        "type1-mnist-w64-b16-00000001": a_case(
            "without weight decay", decay=0.0, end={"line_shape": 4.2, "over_chance_all": 1}
        ),
        "type1-mnist-w64-b16-c2-00000002": a_case(
            "2 classes", network="type1-mnist-w64-b16-c2", data="mnist, 2 classes", seeds=1, classes=2
        ),
    }


def texts(table: Any, row: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[row], strict=True))


def test_curves_are_means_in_bands_of_a_standard_deviation() -> None:
    figure = emergence({"some": a_case(), "others": a_case("2 classes", seeds=1)})
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert (len(lines), len(bands)) == (2 * len(PANELS), len(PANELS))
    assert lines[0].y[[0, -1]] == pytest.approx([3.31, 1.08])
    assert lines[0].x == pytest.approx(numpy.log10(1 + numpy.array(EPOCHS)))
    assert bands[0].y[0] - bands[0].y[-1] == pytest.approx(0.02)
    assert lines[0].text[-1] == "epoch 250, n = 3"


def test_labels_of_epochs_do_not_run_into_each_other() -> None:
    axis = emergence(a_case()).layout.xaxis
    assert axis.ticktext == ("0", "5", "15", "38", "100", "250")
    assert axis.tickvals == pytest.approx(numpy.log10(1 + numpy.array([0, 5, 15, 38, 100, 250])))
    assert emergence(a_case(epochs=(0,))).layout.xaxis.ticktext == ("0",)


def test_a_seed_that_diverged_is_left_out_from_there_on() -> None:
    data = a_case()
    for key in PANELS:
        data[key][2, 3:] = numpy.nan
    line = next(trace for trace in emergence(data).data if trace.mode == "lines+markers")
    assert line.y[-1] == pytest.approx(1.075)
    assert line.text[-1] == "epoch 250, n = 2"
    row = texts(emergence_view({"a": data}).tables[0], 0)
    assert row["networks"] == "2 of 3"
    assert row["LSS"] == "1.08 ± 0.0071"


def test_a_case_whose_seeds_all_diverged_has_no_numbers() -> None:
    cases = changes()
    gone = cases["type1-mnist-w64-b16-00000001"]
    for key in (*COLUMNS, "value"):
        gone[key][:, 1:] = numpy.nan
    view = emergence_view(cases)
    assert texts(view.tables[0], 1)["LSS"] == "-"
    assert texts(view.tables[0], 1)["networks"] == "0 of 3"
    assert "'2 classes'" in view.sentences[-1]


def test_the_line_through_the_inverse_of_the_largest_value() -> None:
    figure = last_values(a_case())
    assert figure.data[0].y == pytest.approx(numpy.arange(1.0, 17.0))
    assert figure.data[1].name == "line: slope 1, R² 1.000"
    view = emergence_view({"a": a_case(), "b": a_case(network="type2-digits-w4-b2", data="digits", units=2)})
    captions = [picture.caption for name, picture in view.figures.items() if "values" in name]
    assert "leaves out the first 4 units: slope 1, R² 1, of values" in captions[0]
    assert "No line: 2 units are too few." in captions[1]


def test_values_after_the_number_of_classes_have_another_colour() -> None:
    figure = values_by_case({"10": a_case(), "2": a_case("2 classes", classes=2, seeds=1)})
    assert [trace.showlegend for trace in figure.data].count(True) == 2
    dashes = [trace.line.dash for trace in figure.data]
    assert dashes == ["solid"] * 10 + ["dot"] * 5 + ["solid"] * 2 + ["dot"] * 5


def test_cases_are_compared_with_the_base() -> None:
    cases = {"base": a_case(), "changed": a_case("changed", end={"line_shape": 40.0}, seeds=2)}
    figure = counterfactuals(cases, "base")
    means, points = figure.data[:2]
    assert means.x == pytest.approx([1.08, 40.005])
    assert points.x == pytest.approx([1.07, 1.08, 1.09, 40, 40.01])
    assert points.y == (0, 0, 0, 1, 1)
    assert means.marker.color[0] != means.marker.color[1]
    assert (figure.layout.xaxis.type, figure.layout.xaxis2.type) == ("log", None)
    assert [shape.x0 for shape in figure.layout.shapes] == pytest.approx([1.08, 0.61])
    assert not counterfactuals(cases).layout.shapes


def test_a_run_of_subjects_shows_titles_and_no_names() -> None:
    second = a_case(network="type2-digits-w16-b16", data="digits")
    view = emergence_view({"type1-mnist-w64-b16-3f2a91c0": a_case(), "type2-digits-w16-b16-ab": second})
    assert list(view.figures) == [
        "emergence",
        "type1-mnist-w64-b16-3f2a91c0-values",
        "type2-digits-w16-b16-ab-values",
    ]
    assert all("A.alignment" in picture.studies for picture in view.figures.values())
    after, before, training = view.tables
    assert [row[0] for row in after.rows] == ["type1 on mnist, 3000 samples", "type2 on digits"]
    assert (texts(after, 0)["LSS"], texts(before, 0)["LSS"]) == ("1.08 ± 0.01", "3.31 ± 0.01")
    assert texts(after, 0)["m / chance"] == "0.61 ± 0.01"
    assert texts(training, 0)["decay budget"] == "14.4"
    assert view.sentences[0] == (
        "After 250 epochs 3 networks of type1 on mnist, 3000 samples have a line shape score of 1.08 (1 is straight; "
        "3.31 before training), m of 61% of its chance level (101%), and 98.0% of the branches' energy in the first 10 "
        "singular values (76.0%); 1/s1 over depth has slope 0.91 with R² 0.96."
    )
    assert "3f2a91c0" not in str(view.tables) + str(view.sentences)


def test_cases_that_are_called_the_same_have_their_names() -> None:
    view = emergence_view({"one": a_case(), "two": a_case()})
    called = [row[0] for row in view.tables[0].rows]
    assert called == ["type1 on mnist, 3000 samples (one)", "type1 on mnist, 3000 samples (two)"]


def test_a_run_of_changes() -> None:
    view = emergence_view(changes())
    own = ["counterfactuals", "counterfactuals-along", "counterfactuals-values"]
    assert [name for name in view.figures if name.startswith("counter")] == own
    assert view.figures["counterfactuals"].studies == ("A.counterfactuals",)
    assert "differ from 'type1 on mnist, 3000 samples'" in view.figures["counterfactuals"].caption
    assert view.sentences[-1] == (
        "Of 2 cases with one thing changed the line shape score moves most in 'without weight decay': 4.21 in place of "
        "1.08, with m at 101% of chance in place of 61%."
    )
    assert texts(view.tables[0], 2)["LSS"] == "1.07"


def test_cases_are_compared_with_that_which_differs_in_one_thing() -> None:
    shallow = a_case(network="type1-mnist-w64-b8", end={"line_shape": 1.5})
    longer = a_case(data="mnist", epochs=(0, 60), end={"line_shape": 1.6})
    view = emergence_view({"shallow": shallow, "longer": longer, **changes()})
    assert "in 'without weight decay': 4.21 in place of 1.08" in view.sentences[-1]
    assert "3f2a91c0" in view.figures["counterfactuals"].caption
    decay = {"wd": a_case("without weight decay", decay=0.0)}
    assert "differ in one thing" in emergence_view({"shallow": shallow, **decay}).figures["counterfactuals"].caption


def test_changes_without_what_they_are_compared_with() -> None:
    view = emergence_view({name: data for name, data in changes().items() if "3f2a91c0" not in name})
    assert "differ in one thing" in view.figures["counterfactuals"].caption
    assert view.sentences == []


def test_more_cases_than_colours_are_in_several_figures() -> None:
    cases = {f"case {k}": a_case(f"change {k}", seeds=1, units=3, epochs=(0, 1)) for k in range(8)}
    view = emergence_view({"base": a_case(units=3), **cases})
    shown = [view.figures[name].figure for name in ("counterfactuals-along", "counterfactuals-along-2")]
    assert [sum(bool(trace.showlegend) for trace in figure.data) for figure in shown] == [7, 3]


# -- neural collapse


def along(seed: int = 0, epochs: tuple[int, ...] = (0, 1, 2)) -> xarray.Dataset:
    """NC1 falls tenfold an epoch and twofold a layer."""
    nc1 = 10.0 ** -numpy.arange(len(epochs))[:, None] * 0.5 ** numpy.arange(3)
    return xarray.Dataset(
        {
            "nc1": (("epoch", "layer"), nc1),
            **{name: ("epoch", numpy.linspace(1, 0, len(epochs))) for name in ("nc3", "nc4", "accuracy")},
        },
        {"epoch": list(epochs), "layer": ["stage1.0", "exit of stage1.0", "entry of classifier"]},
        {"measure": "collapse_along", "title": "type1 on digits", "network": f"type1-digits-w50-b1, seed {seed}"},
    )


def test_collapse_against_epochs_and_depth() -> None:
    figure = collapse_in_training({"a": along(), "b": along(1)})
    by_epoch, first, last = figure.data[:3]
    assert by_epoch.y == pytest.approx([0.25, 0.025, 0.0025])
    assert first.y == pytest.approx([1, 0.5, 0.25])
    assert last.y == pytest.approx([0.01, 0.005, 0.0025])
    assert (first.marker.symbol, last.marker.symbol) == ("circle-open", "circle")
    assert figure.layout.xaxis2.ticktext[-1] == "entry of classifier"
    assert figure.layout.yaxis.type == figure.layout.yaxis2.type == "log"


def test_collapse_along_training_is_shown() -> None:
    view = collapse_along_view({"collapse-a-0": along(), "collapse-a-1": along(1)})
    assert view.figures["collapse-along"].studies == ("A.collapse",)
    (table,) = view.tables
    assert table.rows[2] == ["type1-digits-w50-b1, seed 0", "2", "0.01", "0.0025", "0", "0", "0"]
    assert view.sentences[1] == (
        "NC1 before the classifier of type1-digits-w50-b1, seed 1 goes from 0.25 at epoch 0 to 0.0025 at epoch 2."
    )


def test_datasets_are_found_by_their_kind() -> None:
    pieces = {"piece": along().drop_attrs().assign_attrs(part="piece")}
    assert [section.measure for section in sections_of({"a": a_case(), "b": along(), **pieces})] == [
        "emergence",
        "collapse_along",
    ]


def test_cases_of_version_0_1_0_are_recognised_by_their_titles() -> None:
    """Their datasets do not say whether something was changed."""
    now, cases = emergence_view(changes()), changes()
    for data in cases.values():
        del data.attrs["changed"]
    then = emergence_view(cases)
    assert list(then.figures) == list(now.figures)
    assert "counterfactuals" in then.figures
    assert then.sentences == now.sentences


def test_a_population_is_shown_by_its_decays_and_cases() -> None:
    cases = ["a", "a", "b", "b"]
    numbers = {"nc1": [0.1, 0.3, 5, 7], "over_chance_all": [0.5, 0.6, 1, 1], "line_shape": [1.0, 1.1, 3, 4]}
    numbers |= {"train_accuracy": [1.0] * 4, "test_accuracy": [0.9] * 4, "weight_decay": [5e-3, 5e-3, 0, 0]}
    data = xarray.Dataset(
        {"case": ("network", cases), **{name: ("network", values) for name, values in numbers.items()}},
        {"network": range(4)},
        {"measure": "alignment_population", "network": "type1-mnist-w64-b16", "study": "A.collapse"},
    )
    view = population_view({"collapse-population": data})
    (picture,) = view.figures.values()
    assert picture.studies == ("A.collapse",)
    assert [trace.name for trace in picture.figure.data] == ["decay 0", "decay 0.005"]
    assert list(picture.figure.data[1].x) == [0.1, 0.3]
    (table,) = view.tables
    assert [row[1:4] for row in table.rows] == [["a", "2", "0.2"], ["b", "2", "6"]]
    assert len(sections_of({"collapse-population": data})) == 1
