"""Networks that differ in one number: intervals, the small pictures, and the grid of weight decay and epochs."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from skipscope.papers.a.doses import SHOWN, by_dose, of_one_series
from skipscope.papers.a.figures.doses import doses
from skipscope.papers.a.quantities import ALL_PAIRS, LSS, SLOPE
from skipscope.papers.a.studies import classes, decay, labels, sizes, skips
from skipscope.papers.a.studies.counterfactuals import A16, LSS_WITH_DECAY, LSS_WITHOUT_DECAY
from skipscope.papers.a.views.doses import doses_view
from skipscope.papers.kit import Study
from skipscope.papers.kit.estimates import student
from tests.papers.a.known import MNIST, decided, fake
from tests.papers.conftest import SmokeRun


def test_intervals_are_those_by_which_claims_are_judged() -> None:
    shapes = [1.05, 1.1, 1.2, 1.3, 1.15]
    data = by_dose(of_one_series({0.0: fake(5, line_shape=shapes), 1.0: fake(3)}), "skip factor", title="skips")
    assert data.sizes == {"case": 2, "quantity": len(SHOWN), "network": 5}
    of_shape = data.sel(quantity=LSS.name)
    assert of_shape["value"].values[0].tolist() == shapes
    assert numpy.isfinite(of_shape["value"].values[1]).sum() == 3  # fewer networks
    low, high = student(numpy.log(shapes))  # a ratio: on logarithms
    assert float(of_shape["low"][0]) == pytest.approx(numpy.exp(low))
    assert float(of_shape["high"][0]) == pytest.approx(numpy.exp(high))
    assert float(of_shape["mean"][0]) == pytest.approx(numpy.exp(numpy.log(shapes).mean()))
    low, high = student(numpy.array([0.5, 1.0, 1.5, 1.0, 1.0]))  # as it is
    plain = by_dose(of_one_series({0.0: fake(5, slope=[0.5, 1.0, 1.5, 1.0, 1.0])}), "x").sel(quantity=SLOPE.name)
    assert [float(plain["low"][0]), float(plain["high"][0])] == pytest.approx([low, high])


def test_one_network_and_diverged_ones_have_no_interval() -> None:
    lost = fake(2, **dict.fromkeys(SHOWN.values(), numpy.nan))
    data = by_dose({("", 0.0): fake(1), ("", 1.0): lost}, "dose", title="t")
    assert numpy.isfinite(data["mean"][0]).all()
    assert numpy.isnan(data["low"][0]).all()
    assert numpy.isnan(data["mean"][1]).all()
    table = doses_view({"skips-doses": data.assign_attrs(study="A.skips")}).tables[0]
    assert [row[2] for row in table.rows] == ["1", "0"]
    assert set(table.rows[1][4:]) == {"-"}


def test_every_quantity_has_a_small_picture() -> None:
    found = {
        (f"{epochs} epochs", amount): fake(5, over_chance_all=[0.5 + amount] * 4 + [0.6])
        for epochs in (30, 90)
        for amount in (0.0, 1e-3, 1e-2)
    }
    data = by_dose(found, "weight decay", title="Weight decay")
    figure = doses(data)
    titles = [annotation.text for annotation in figure.layout.annotations]
    assert titles[: len(SHOWN)] == [quantity.name for quantity in SHOWN]
    means = [trace for trace in figure.data if trace.name == "30 epochs"]
    assert len(means) == len(SHOWN)
    place = [quantity.name for quantity in SHOWN].index(ALL_PAIRS.name)
    drawn = means[place]
    expected = data.sel(quantity=ALL_PAIRS.name).isel(case=slice(3))
    assert list(drawn.y) == pytest.approx(expected["mean"].values.tolist())
    assert list(drawn.error_y.array) == pytest.approx((expected["high"] - expected["mean"]).values.tolist())
    assert list(drawn.error_y.arrayminus) == pytest.approx((expected["mean"] - expected["low"]).values.tolist())
    assert figure.layout.xaxis.ticktext == ("0", "0.001", "0.01")
    assert sum(bool(trace.showlegend) for trace in figure.data) == 3  # two series, and one network


@pytest.mark.slow
@pytest.mark.parametrize(
    "study", [skips.STUDY, labels.STUDY, classes.STUDY, sizes.STUDY, decay.STUDY], ids=lambda study: study.id
)
def test_runs_have_the_small_pictures(study: Study, smoke_run: Callable[..., SmokeRun]) -> None:
    datasets = smoke_run(study).datasets()
    (name,) = [name for name, data in datasets.items() if data.attrs["measure"] == "alignment_doses"]
    view = doses_view({name: datasets[name]})
    assert view.figures[name].studies == (study.id,)
    assert str(datasets[name].attrs["dose_is"]) in view.figures[name].caption
    assert view.tables[0].rows


def grid(without: float = 4.0, with_decay: float = 1.05) -> decay.Grid:
    ends = {0.0: without, decay.WITH_DECAY: with_decay}
    return {(amount, epochs): fake(5, line_shape=end) for amount, end in ends.items() for epochs in (30, 250)}


def test_each_length_stands_beside_what_decides() -> None:
    found = decay.evidence(grid(), MNIST)
    measured = list(found[A16])
    assert [one.subject for one in measured] == ["type1-mnist, 30 epochs", "type1-mnist, 250 epochs"]
    assert measured[0].values[LSS_WITHOUT_DECAY] == pytest.approx([4.0] * 5)
    assert measured[0].values[LSS_WITH_DECAY] == pytest.approx([1.05] * 5)
    decision = decided(A16, found)
    assert decision.verdict == "open"  # eight networks of A.counterfactuals decide
    assert [subject.verdict for subject in decision.subjects] == ["reproduced"] * 2
    assert [subject.verdict for subject in decided(A16, decay.evidence(grid(2.0), MNIST)).subjects] == [
        "not reproduced"
    ] * 2
    assert decay.evidence({(0.0, 30): fake(5)}, MNIST) == {A16: []}


def test_the_grid_is_of_weight_decay_and_epochs() -> None:
    full = decay.STUDY.presets["full"]
    assert len(full.decays) * len(full.lengths) * full.networks == 75
    assert {0.0, decay.WITH_DECAY} <= set(full.decays)
