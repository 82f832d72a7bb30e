"""What a report shows of PlainNet, ResNet and ResNeXt, trained alike: accuracies, condition numbers, ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import xarray

from skipscope.papers.c.figures.layer_conditions import hidden_conditions, rank_shares, weight_conditions
from skipscope.papers.c.figures.twins import at_best, generalisation, in_paper, places, twin_accuracies, twin_curves
from skipscope.papers.c.views import VIEWS
from skipscope.papers.c.views.layer_conditions import conditions_along_view, gradient_ranks_view, layer_conditions_view
from skipscope.papers.c.views.twins import by_title, drift_view, generalisation_view, twins_view
from skipscope.report.page import write_report
from skipscope.report.style import COLOURS
from skipscope.report.views.view import View
from skipscope.runs import RunFolder

NETWORKS = ["PlainNet", "ResNet", "ResNeXt"]
WHEN = ["at initialisation", "early in training"]
RELU, LINEAR = "mnist-60-connected-0123abcd", "mnist-60-connected-linear-4567cdef"  # ends of datasets' names
CASE = "60 layers, fully connected, on mnist"


def twins_data(*, seeds: int = 2, epochs: int = 4) -> xarray.Dataset:
    """The best rate of PlainNet is the lowest, that of others the highest. PlainNet diverges at the highest rate, the
    last seed of ResNeXt at all; ResNet is not trained at the lowest."""
    rates = numpy.array([0.001, 0.01, 0.1])
    train = numpy.stack([numpy.linspace(low, high, 3) for low, high in ((0.2, 0.1), (0.7, 0.99), (0.6, 0.98))])
    train = train[:, None] + 0.002 * numpy.arange(seeds)[None, :, None]
    train[0, :, 2] = numpy.nan
    train[2, -1] = numpy.nan
    train[1, :, 0] = numpy.nan
    status = numpy.where(numpy.isnan(train), "diverged", "finished").astype(object)
    status[1, :, 0] = "not trained"
    best = numpy.repeat([[0.001], [0.1], [0.1]], seeds, axis=1)
    shape = (3, seeds, epochs)
    along = numpy.broadcast_to(numpy.linspace(0.1, 0.9, epochs), shape).copy()
    tested = along.copy()
    tested[..., 1::2] = numpy.nan
    loss = numpy.broadcast_to(numpy.geomspace(100, 0.01, epochs), shape).copy()
    loss[2, -1, 2:] = numpy.inf
    place = ("network", "seed")
    return xarray.Dataset(
        {
            "train_accuracy": ((*place, "rate"), train),
            "test_accuracy": ((*place, "rate"), train - 0.05),
            "status": ((*place, "rate"), status),
            "best_rate": (place, best),
            "loss": ((*place, "epoch"), loss),
            "train_accuracy_along": ((*place, "epoch"), along),
            "test_accuracy_along": ((*place, "epoch"), tested),
        },
        {"network": NETWORKS, "seed": list(range(seeds)), "rate": rates, "epoch": list(range(1, epochs + 1))},
        {
            "measure": "twins",
            "study": "C.accuracy",
            "title": CASE,
            "data": "mnist",
            "epochs": epochs,
            "batch": 128,
            "depth": 60,
            "chance": 0.1,
            "paper_train": json.dumps({"PlainNet": 0.112, "ResNet": 0.9999}),
            "paper_test": "",
            "models": json.dumps({name: f"{name.lower()}60-mnist-connected" for name in NETWORKS}),
        },
    )


def conditions_data(*, seeds: int = 2, layers: int = 10) -> xarray.Dataset:
    """PlainNet: weights 10^layer; states infinite in layers 1 to 3, in layer 2 of the first seed alone, numerically so
    in 4, overflow in 5. Others: 10 throughout. Layer 8 is inside a branch and infinite, 9 is the classifier."""
    shape = (3, seeds, layers)
    weights, hidden = numpy.full(shape, 10.0), numpy.full(shape, 10.0)
    weights[0] = 10.0 ** numpy.arange(layers)
    status = numpy.full(shape, "finite", dtype=object)
    status[0, :, 1:4], status[0, 1:, 2] = "infinite", "finite"
    status[0, :, 4], status[0, :, 5], status[0, :, 8] = "numerically infinite", "overflow", "infinite"
    hidden[0, :, 4], hidden[0, :, 5] = 1e18, numpy.nan
    hidden[status == "infinite"] = numpy.inf
    rank = numpy.where(status == "infinite", 48.0, 64.0)
    place = ("network", "seed", "layer")
    return xarray.Dataset(
        {
            "weight_condition": (place, weights),
            "weight_status": (place, numpy.full(shape, "finite", dtype=object)),
            "hidden_condition": (place, hidden),
            "hidden_status": (place, status),
            "hidden_rank": (place, rank),
            "hidden_full_rank": (place, numpy.full(shape, 64.0)),
            "dead_units": (place, 64 - rank),
            "between": (place, numpy.broadcast_to(numpy.arange(layers) < layers - 2, shape)),
        },
        {"network": NETWORKS, "seed": list(range(seeds)), "layer": list(range(layers))},
        {
            "measure": "layer_conditions",
            "study": "C.weights, C.hidden",
            "title": CASE,
            "data": "mnist",
            "reduction": "max",
            "samples": 500,
        },
    )


def along_data() -> xarray.Dataset:
    """Those of the first seed, at epochs 0 and 5, at which weights have ten times the condition; ResNeXt has no 5."""
    before = conditions_data().isel(seed=0, drop=True)[["weight_condition", "weight_status", "hidden_condition"]]
    before = before.assign(conditions_data().isel(seed=0, drop=True)[["hidden_status", "between"]])
    after = before.copy(deep=True).assign(weight_condition=10 * before["weight_condition"])
    after["weight_condition"][2] = after["hidden_condition"][2] = numpy.nan
    after["weight_status"][2] = after["hidden_status"][2] = ""
    joined = xarray.concat([before, after], xarray.IndexVariable("epoch", [0, 5]))
    about = {"measure": "conditions_along", "study": "C.weights, C.hidden", "title": CASE, "seed": 1000}
    return joined.transpose("network", "epoch", "layer").assign_attrs(about)


def ranks_data(*, seeds: int = 2, layers: int = 6) -> xarray.Dataset:
    """Those of PlainNet fall from 1 to 0.25, others are 1."""
    errors = numpy.ones((3, seeds, 2, layers))
    errors[0] = numpy.linspace(0.25, 1, layers)
    place = ("network", "seed", "when", "layer")
    return xarray.Dataset(
        {"error_share": (place, errors), "gradient_share": (place, errors / 2)},
        {"network": NETWORKS, "seed": list(range(seeds)), "when": WHEN, "layer": list(range(layers))},
        {"measure": "gradient_ranks", "study": "C.histograms", "title": CASE},
    )


def generalisation_data() -> xarray.Dataset:
    """The last of three networks does not fit."""
    return xarray.Dataset(
        {
            "model": ("case", ["resnet8-mnist-connected", "resnet8-mnist-connected", "resnet14-mnist-connected"]),
            "seed": ("case", [0, 1, 0]),
            "train_accuracy": ("case", [0.995, 1.0, 0.98]),
            "test_accuracy": ("case", [0.945, 0.97, 0.96]),
            "condition": ("case", [2.0, 3.0, 4.0]),
        },
        attrs={"measure": "generalisation", "title": "Conditioning and generalisation", "data": "mnist"},
    )


# -- figures


def test_networks_are_shown_at_their_own_best_rates() -> None:
    best = at_best(twins_data(), "train").values
    assert best[:2] == pytest.approx(numpy.array([[0.2, 0.202], [0.99, 0.992]]))
    assert best[2, 0] == pytest.approx(0.98)
    assert numpy.isnan(best[2, 1])


def test_what_the_paper_has() -> None:
    assert in_paper(twins_data(), "train") == {"PlainNet": 0.112, "ResNet": 0.9999}
    assert in_paper(twins_data(), "test") == {}
    some = twins_data().assign_attrs(paper_test=json.dumps({"PlainNet": 0.5, "ResNet": ""}))
    assert in_paper(some, "test") == {"PlainNet": 0.5}


def test_accuracies_beside_the_papers() -> None:
    figure = twin_accuracies({"one": twins_data(), "two": twins_data()})
    train = {trace.name: trace for trace in figure.data if trace.xaxis == "x"}
    test = {trace.name: trace for trace in figure.data if trace.xaxis == "x2"}
    assert set(train) == {"chance", "one seed", "the paper", "diverged at all rates"}
    assert "the paper" not in test
    assert list(train["the paper"].x) == [0.112, 0.9999] * 2
    assert list(train["the paper"].y) == [1, 2, 5, 6]
    assert train["one seed"].x[:5] == pytest.approx([0.2, 0.202, 0.99, 0.992, 0.98])
    assert test["one seed"].x[:2] == pytest.approx([0.15, 0.152])
    assert list(train["diverged at all rates"].y) == [3, 7]
    assert set(train["chance"].x) == {0.1}
    assert list(figure.layout.yaxis.ticktext) == NETWORKS * 2
    assert [(note.text, note.y) for note in figure.layout.annotations if note.xref == "x"] == [("one", 0), ("two", 4)]


def test_curves_along_training() -> None:
    figure = twin_curves(twins_data())
    panels = {axis: [trace for trace in figure.data if trace.xaxis == axis] for axis in ("x", "x2", "x3")}
    assert [len(traces) for traces in panels.values()] == [6, 6, 6]
    assert figure.layout.yaxis.type == "log"
    assert numpy.isfinite(panels["x"][5].y).tolist() == [True, True, False, False]
    assert all(trace.connectgaps for trace in panels["x3"])
    assert not any(trace.connectgaps for trace in panels["x"])
    assert [trace.showlegend for trace in panels["x"]] == [True, False] * 3
    assert [shape.y0 for shape in figure.layout.shapes] == [0.1, 0.1]


def test_the_test_loss_is_that_of_looks() -> None:
    data = twins_data()
    figure = twin_curves(data.assign(test_loss_along=2 * data["test_accuracy_along"]))
    traces = [trace for trace in figure.data if trace.xaxis == "x4"]
    assert [len(traces), figure.layout.yaxis4.type] == [6, "log"]
    assert all(trace.connectgaps for trace in traces)
    assert [annotation.text for annotation in figure.layout.annotations][3] == "test loss, at looks"


def test_known_networks_look_the_same_everywhere() -> None:
    assert places(["one", "ResNet", "two", "PlainNet"]) == {"one": 4, "ResNet": 1, "two": 5, "PlainNet": 0}
    alone = twin_curves(twins_data().isel(network=[1]))
    together = weight_conditions(conditions_data())
    assert (
        alone.data[0].line.color == next(one for one in together.data if one.name == "ResNet").line.color == COLOURS[1]
    )


def test_infinite_condition_numbers_have_a_line_of_their_own() -> None:
    figure = hidden_conditions(conditions_data())
    legend = [trace for trace in figure.data if trace.meta.get("drawn") == "only"]
    upper = [trace for trace in figure.data if trace.yaxis == "y" and trace not in legend]
    curves, marks = [one for one in upper if "lines" in one.mode], [one for one in upper if one.mode == "markers"]
    assert list(curves[0].x) == list(range(1, 9))
    assert numpy.isfinite(curves[0].y).tolist() == [True] + [False] * 5 + [True] * 2
    assert numpy.isfinite(curves[1].y).tolist() == [True, False, True] + [False] * 3 + [True] * 2
    by_symbol = {mark.marker.symbol: mark for mark in marks}
    assert list(by_symbol) == ["triangle-up", "triangle-up-open", "x"]
    assert list(by_symbol["triangle-up"].x) == [2, 3, 4]
    assert by_symbol["triangle-up"].meta["y"] == [f"infinite in {count} of 2 seeds" for count in (2, 1, 2)]
    assert by_symbol["triangle-up"].marker.opacity == pytest.approx([1, 0.65, 1])
    assert list(by_symbol["triangle-up-open"].x) == [5]
    assert list(by_symbol["x"].x) == [6]
    assert {level for mark in marks for level in mark.y} == {figure.layout.shapes[0].y0}
    assert figure.layout.shapes[0].y0 > 10
    assert len(figure.layout.shapes) == 1
    assert [trace.name for trace in legend] == ["infinite", "numerically infinite", "overflow"]


def test_ranks_and_dead_units_stand_below() -> None:
    figure = hidden_conditions(conditions_data())
    ranks = [trace for trace in figure.data if trace.yaxis == "y2"]
    dead = [trace for trace in figure.data if trace.yaxis == "y3"]
    assert ranks[0].y == pytest.approx([1, 0.75, 0.75, 0.75, 1, 1, 1, 1])
    assert list(dead[0].y[:4]) == [0, 16, 16, 16]
    assert (len(ranks), len(dead)) == (6, 6)


def test_nothing_finite_is_drawn_too() -> None:
    data = conditions_data()
    data["hidden_status"] = xarray.full_like(data["hidden_status"], "infinite")
    levels = {shape.y0 for shape in hidden_conditions(data).layout.shapes}
    assert len(levels) == 3  # one a network


def test_weights_on_a_logarithmic_axis() -> None:
    figure = weight_conditions(conditions_data(seeds=1))
    assert figure.layout.yaxis.type == "log"
    assert figure.data[0].y == pytest.approx(10.0 ** numpy.arange(10))
    assert len(figure.data) == 3
    assert not figure.layout.shapes


def test_rank_shares() -> None:
    figure = rank_shares(ranks_data())
    assert [title.text for title in figure.layout.annotations] == [
        "back-propagated errors, at initialisation",
        "weight gradients, at initialisation",
        "back-propagated errors, early in training",
        "weight gradients, early in training",
    ]
    assert figure.data[0].y == pytest.approx(numpy.linspace(0.25, 1, 6))
    assert len(figure.data) == 4 * 3 * 2


# -- views


def check(view: View) -> None:
    for table in view.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
        assert table.about
    for picture in view.figures.values():
        assert "{" not in picture.caption
        assert "The paper" in picture.caption
        assert picture.figure.data


def test_the_view_of_twins() -> None:
    linear = twins_data().assign_attrs(title="linear units", study="C.linear")
    view = twins_view({f"twins-{RELU}": twins_data(), f"twins-{LINEAR}": linear})
    check(view)
    assert {name: picture.studies for name, picture in view.figures.items()} == {
        "accuracy-accuracies": ("C.accuracy",),
        "linear-accuracies": ("C.linear",),
        f"twins-{RELU}-curves": ("C.accuracy",),
        f"twins-{LINEAR}-curves": ("C.linear",),
    }
    accuracies, rates, others = view.tables
    cells = ["20.10 ± 0.14 %", "11.20 %", "15.10 ± 0.14 %", "-", "0.001", "2 of 2"]
    assert list(accuracies.rows[0]) == [CASE, "PlainNet", "plainnet60-mnist-connected", *cells]
    assert list(accuracies.rows[2])[3:] == ["98.00 %", "-", "93.00 %", "-", "0.1", "1 of 2"]
    assert (rates.title, others.title) == (f"Learning rates: {CASE}", "Learning rates: linear units")
    assert list(rates.columns) == ["network", "rate 0.001", "rate 0.01", "rate 0.1"]
    assert list(rates.rows[0]) == ["PlainNet", "20.1 / 15.1 %", "15.1 / 10.1 %", "diverged"]
    assert list(rates.rows[1])[:2] == ["ResNet", "-"]
    assert list(rates.rows[2]) == ["ResNeXt", "60.0 / 55.0 % (1)", "79.0 / 74.0 % (1)", "98.0 / 93.0 % (1)"]
    assert view.sentences[0] == (f"{CASE}, train accuracy (chance 10.0%): PlainNet 20.1%, ResNet 99.1%, ResNeXt 98.0%.")


def test_cases_have_titles_of_their_own() -> None:
    data, single = twins_data(), twins_data().isel(network=[1])
    assert list(by_title({"one": data})) == [CASE]
    assert list(by_title({"one": data, "two": single})) == [f"{CASE} (PlainNet; ResNet; ResNeXt)", f"{CASE} (ResNet)"]
    assert list(by_title({"one": single, "two": single})) == [f"{CASE} (ResNet) (one)", f"{CASE} (ResNet) (two)"]


def test_networks_on_their_own_are_in_the_table_alone() -> None:
    single = twins_data().isel(network=[1])
    view = twins_view({f"twins-{RELU}": twins_data(), "twins-mnist-8-connected-n2-0123abcd": single})
    assert list(view.figures) == ["accuracy-accuracies", f"twins-{RELU}-curves"]
    assert [row[1] for row in view.tables[0].rows] == [*NETWORKS, "ResNet"]
    assert len(view.tables) == 2
    assert len(twins_view({"twins-mnist-8-connected-n2-0123abcd": single}).figures) == 2


def test_cases_of_one_study_share_a_figure() -> None:
    dirac = twins_data().assign_coords(network=["DiracNet", "ResNet", "DiracNet, additive"])
    dirac.attrs |= {
        "models": json.dumps(dict.fromkeys(dirac["network"].values.tolist(), "a model")),
        "study": "C.dirac",
    }
    others = {name: twins_data().assign_attrs(title=name) for name in ("one", "two")}
    view = twins_view({"dirac": dirac, **others})
    assert {name: picture.studies for name, picture in view.figures.items()} == {
        "dirac-accuracies": ("C.dirac",),
        "accuracy-accuracies": ("C.accuracy",),
        "dirac-curves": ("C.dirac",),
        "one-curves": ("C.accuracy",),
        "two-curves": ("C.accuracy",),
    }


def test_cases_of_version_0_1_0_are_grouped_by_their_networks_and_options() -> None:
    """Their datasets do not name the studies that they were made for."""
    without_norms = "mnist-60-connected-nonorm-89ab0123"
    dirac = twins_data().assign_coords(network=["DiracNet", "ResNet", "DiracNet, additive"])
    dirac.attrs["models"] = json.dumps(dict.fromkeys(dirac["network"].values.tolist(), "a model"))
    cases = {f"twins-{RELU}": twins_data(), "twins-mnist-60-connected-cdef4567": dirac}
    cases |= {f"twins-{end}": twins_data() for end in (LINEAR, without_norms)}
    for name, data in cases.items():
        del data.attrs["study"]
        data.attrs["title"] = name
    view = twins_view(cases)
    check(view)
    charts = {name: picture for name, picture in view.figures.items() if name.endswith("-accuracies")}
    assert list(charts) == [
        "accuracy-accuracies",
        "dirac-accuracies",
        "linear-accuracies",
        "histograms-accuracies",
    ]
    assert all(picture.studies == () for picture in charts.values())


def test_a_network_that_always_diverges_is_said_to() -> None:
    data = twins_data()
    for key in ("train_accuracy", "test_accuracy"):
        data[key].loc[{"network": "ResNeXt"}] = numpy.nan
    view = twins_view({f"twins-{RELU}": data})
    check(view)
    assert list(view.tables[0].rows[2])[3:] == ["diverged", "-", "diverged", "-", "0.1", "0 of 2"]
    assert view.sentences[0].endswith("ResNeXt diverges.")
    assert "a seed that diverged" in view.figures["accuracy-accuracies"].caption


def test_conditioning_and_generalisation() -> None:
    fitted, others = generalisation(generalisation_data()).data
    assert list(fitted.x) == [2, 3]
    assert fitted.y == pytest.approx([-0.05, -0.03])
    assert list(others.x) == [4]
    view = generalisation_view({"accuracy-generalisation": generalisation_data().assign_attrs(study="C.accuracy")})
    check(view)
    assert view.figures["accuracy-generalisation"].studies == ("C.accuracy",)
    row = ["resnet8-mnist-connected", "0", "2", "99.50 %", "94.50 %", "-5.00 %"]
    assert list(view.tables[0].rows[0]) == row


def test_the_view_of_drift() -> None:
    values = {"drift": [0.25, 0.75], "factor": [1.25, 1.75], "first_distance": [2.0, 2.0], "distance": [3.0, 5.0]}
    values |= {"reached_train_accuracy": [0.9, 0.92], "reached_test_accuracy": [0.8, 0.82]}
    data = xarray.Dataset(
        {key: (("network", "seed"), [row, row]) for key, row in values.items()},
        {"network": ["DiracNet", "ResNet"], "seed": [0, 1]},
        {"measure": "drift", "title": CASE},
    )
    data["drift"].loc[{"network": "ResNet"}] = numpy.nan
    (table,) = drift_view({"dirac-drift-mnist-20-connected-0123abcd": data}).tables
    row = [CASE, "DiracNet", "0.5 ± 0.35", "1.5 ± 0.35", "2 ± 0", "4 ± 1.4"]
    assert list(table.rows[0]) == [*row, "91.00 ± 1.41 %", "81.00 ± 1.41 %"]
    assert table.rows[1][2] == "-"


def test_the_view_of_condition_numbers() -> None:
    linear = conditions_data().assign_attrs(title="linear units", study="C.linear")
    view = layer_conditions_view({f"conditions-{RELU}": conditions_data(), f"conditions-{LINEAR}": linear})
    check(view)
    assert {name: picture.studies for name, picture in view.figures.items()} == {
        f"conditions-{RELU}-weights": ("C.weights",),
        f"conditions-{RELU}-hidden": ("C.hidden",),
        f"conditions-{LINEAR}-weights": ("C.linear",),
        f"conditions-{LINEAR}-hidden": ("C.linear",),
    }
    assert "opposite order to the paper's theory" in view.figures[f"conditions-{RELU}-hidden"].caption
    assert "figure 13" in view.figures[f"conditions-{LINEAR}-hidden"].caption
    weights, hidden = view.tables
    assert list(weights.rows[0]) == [CASE, "PlainNet", "4.5 ± 0", "0 ± 0", "9 ± 0", "1 ± 0", "0 of 20"]
    assert list(weights.rows[1])[2:] == ["1 ± 0", "1 ± 0", "1 ± 0", "-", "0 of 20"]
    plain, residual = (dict(zip(hidden.columns, hidden.rows[row], strict=True)) for row in (0, 1))
    assert plain["first layer"] == plain["last layer"] == "1 ± 0"
    assert plain["median of the rest"] == "inf"  # in one seed; 9.5, between 1 and 18, in the other
    assert plain["infinite"] == "0.312 ± 0.088"  # 3 and 2 of 8
    assert plain["infinite, inside too"] == "0.389 ± 0.079"  # 4 and 3 of 9
    assert plain["numerically infinite"] == plain["overflow"] == "0.125 ± 0"
    assert plain["from / to"] == "2 / 4"
    assert (plain["smallest rank"], plain["dead units"]) == ("0.75 ± 0", "16 ± 0")
    assert (residual["median of the rest"], residual["from / to"]) == ("1 ± 0", "-")
    assert view.sentences[0] == (
        f"{CASE}: infinite condition numbers of the hidden states between blocks, 31% of PlainNet's, 0% of ResNet's, "
        "0% of ResNeXt's."
    )


def test_the_view_of_condition_numbers_along_the_training() -> None:
    view = conditions_along_view({f"conditions-along-{RELU}": along_data()})
    check(view)
    rows = [list(row)[1:] for row in view.tables[0].rows]
    assert rows[:2] == [["PlainNet", "0", "4.5", "1", "5 of 8"], ["PlainNet", "5", "5.5", "1", "5 of 8"]]
    assert rows[-1] == ["ResNeXt", "5", "-", "-", "8 of 8"]
    figure = view.figures[f"conditions-along-{RELU}-looks"].figure
    lines = [line for line in figure.data if line.x is not None and len(line.x)]
    assert {line.name for line in lines} == {"epoch 0", "epoch 5"}
    assert len(lines) == 2 * 5  # weights and states of three networks at two epochs, of which one has none


def test_the_view_of_rank_shares() -> None:
    view = gradient_ranks_view({f"histograms-ranks-{RELU}": ranks_data()})
    check(view)
    assert view.figures[f"histograms-ranks-{RELU}-shares"].studies == ("C.histograms",)
    rows = view.tables[0].rows
    assert [list(row)[:3] for row in rows[:2]] == [[CASE, "PlainNet", when] for when in WHEN]
    assert list(rows[0])[3:] == ["0.625 ± 0", "0.25 ± 0", "0.312 ± 0", "0.125 ± 0"]
    assert list(rows[2])[3:] == ["1 ± 0", "1 ± 0", "0.5 ± 0", "0.5 ± 0"]


def test_a_report_of_saved_datasets(tmp_path: Path) -> None:
    parts = {
        f"twins-{RELU}": twins_data(seeds=1),
        f"conditions-{RELU}": conditions_data(seeds=1),
        f"conditions-along-{RELU}": along_data(),
        f"histograms-ranks-{RELU}": ranks_data(seeds=1),
        "accuracy-generalisation": generalisation_data(),
    }
    with RunFolder(tmp_path / "run", "study C") as run:
        for name, data in parts.items():
            run.write_dataset(name, data)
    text = write_report(tmp_path / "run").read_text(encoding="utf-8")
    for measure in ("twins", "generalisation", "layer_conditions", "conditions_along", "gradient_ranks"):
        assert VIEWS[measure].heading in text
