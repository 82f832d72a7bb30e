"""The studies of paper A that train many networks: what is decided from known numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope.papers.a.quantities import trend
from skipscope.papers.a.studies import classes, collapse, labels, sizes, skips
from skipscope.papers.a.studies.classes import A9
from skipscope.papers.a.studies.collapse import A12
from skipscope.papers.a.studies.labels import A13
from skipscope.papers.a.studies.sizes import A10
from skipscope.papers.a.studies.skips import A8
from skipscope.papers.kit import Bench, Evidence, Measured, Quantity
from skipscope.runs import RunFolder, load_run
from tests.papers.a.known import (
    MNIST,
    decided,
    drawn,
    fake,
    of,
    require_all_quantities,
    verdicts,
)


def of_classes(large: Callable[[int], float]) -> Evidence:
    return classes.evidence({count: fake(5, large=large(count)) for count in classes.COUNTS}, MNIST)


def test_large_singular_values_follow_the_classes() -> None:
    found = of_classes(lambda count: count - 0.5)
    assert of(found, A9)[classes.CLASSES] == [2, 3, 5, 7, 10]
    assert of(found, A9)[classes.RANK_TREND].value == pytest.approx(1)
    assert of(found, A9)[classes.RANK_OVER_CLASSES[10]] == pytest.approx([0.95] * 5)
    assert decided(A9, found).verdict == "reproduced"
    found = of_classes(lambda count: 20.0 - count)
    assert of(found, A9)[classes.RANK_TREND].value == pytest.approx(-1)
    assert decided(A9, found).verdict == "not reproduced"
    found = of_classes(lambda count: count + 1.0)
    assert of(found, A9)[classes.RANK_OVER_CLASSES[2]] == pytest.approx([1.5] * 5)
    assert decided(A9, found).verdict == "not reproduced"


def test_a_trend_takes_five_networks_of_each_configuration() -> None:
    quantity = Quantity("a trend", "correlation")
    found, why = trend(quantity, [0, 0, 1, 1], [1, 2, 3, 4], [0, 0, 1, 1])
    assert not found
    assert why == (
        "a rank correlation takes 5 networks of each configuration, or 20 configurations; there are 2 with 2 networks "
        "at least"
    )
    assert not trend(quantity, list(range(20)), list(range(20)), list(range(20)))[1]
    few = classes.evidence({2: fake(2, large=1.0), 10: fake(2, large=5.0)}, MNIST)
    assert decided(A9, few).verdict == "open"


def of_sizes(changed: str = "", **end: float | list[float]) -> Evidence:
    cells = list(A10.subjects)
    return sizes.evidence({name: (fake(5, **(end if name == changed else {})), drawn()) for name in cells})


def test_every_size_has_a_verdict() -> None:
    assert list(A10.subjects) == [f"type1-mnist-w{width}-b{depth}" for width in (64, 128, 256) for depth in (8, 16, 32)]
    assert decided(A10, of_sizes()).verdict == "reproduced"
    require_all_quantities(of_sizes())
    decision = decided(A10, of_sizes("type1-mnist-w128-b32", over_chance_adjacent=0.8, slope=3.0))
    assert decision.verdict == "partly reproduced"
    assert [name for name, verdict in verdicts(decision).items() if verdict != "reproduced"] == ["width 128, 32 blocks"]
    spread = decided(A10, of_sizes("type1-mnist-w64-b8", line_shape=[1.05, 1.05, 1.3, 1.3, 1.3]))
    assert verdicts(spread)["width 64, 8 blocks"] == "inconclusive"  # not a share of networks that pass


ABSENT = {"over_chance_all": 1.0, "energy": 0.6, "r_squared": 0.2}


def of_skips(without: dict[str, Any], with_skips: dict[str, Any] | None = None) -> Evidence:
    """m_K falls as the factor rises."""
    found = {factor: fake(5, over_chance_all=1.0 - 0.5 * factor) for factor in skips.FACTORS}
    found[1.0], found[0.0] = fake(**(with_skips or {})), fake(**without)
    return skips.evidence(found, "type1-mnist, 6 blocks", 5)


def test_alignment_goes_away_without_skips() -> None:
    found = of_skips(ABSENT)
    require_all_quantities(found)
    assert decided(A8, found).verdict == "reproduced"
    assert list(found[A8])[1].count == 25
    assert of(found, A8, 1)[skips.TREND].value == pytest.approx(-1)
    rank = verdicts(decided(A8, of_skips({**ABSENT, "energy": 1.0})))
    assert rank == {
        "RA2, common vectors": "reproduced",
        "RA3, rank": "not reproduced",
        "RA4, one over depth": "reproduced",
        "dose": "reproduced",
    }
    found = of_skips({"start": {"line_shape": 12.0}, "line_shape": 6.0})
    assert of(found, A8)[skips.LSS_LEFT["without"]] == pytest.approx([0.5] * 8)


def test_networks_without_skips_that_do_not_fit_leave_it_open() -> None:
    decision = decided(A8, of_skips({**ABSENT, "train_accuracy": 0.8}))
    assert set(verdicts(decision).values()) == {"open"}
    assert "train accuracy below 0.99" in decision.reason


def test_networks_with_and_without_skips_are_trained_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = []
    monkeypatch.setattr(skips, "train_all", lambda bench, subjects: None)
    monkeypatch.setattr(skips, "emergence", lambda bench, subject: made.append(subject) or fake(5))
    with RunFolder(tmp_path / "run", "study A") as run:
        settings = replace(skips.STUDY.presets["full"], subject="type1-digits")
        skips.run(Bench("A.skips", run, preset="smoke", seed=0, device="cpu"), settings)
    assert len({one.training for one in made}) == 1
    way = made[0].training
    assert (way.rate, way.clip, way.weight_decay, way.epochs) == (0.1, 1.0, 0.0133, 90)
    endings = [one.model.partition("-b6")[2] for one in made]
    assert endings == ["-noskips", "-skip25", "-skip50", "-skip75", ""]
    assert [len(one.seeds) for one in made] == [8, 5, 5, 5, 8]


def of_labels(random: dict[str, Any], **true: Any) -> Evidence:
    tests = {0.0: 0.95, 0.1: 0.9, 0.25: 0.8, 0.5: 0.6, 1.0: 0.1}
    found = {
        noise: fake(5, test_accuracy=test, over_chance_all=1 - 0.4 * test, line_shape=1.1)
        for noise, test in tests.items()
    }
    found[0.0] = fake(5, **true)
    found[1.0] = fake(5, test_accuracy=0.1, **random)
    return labels.evidence(found, MNIST)


def test_label_noise() -> None:
    found = of_labels({"over_chance_all": 0.9, "line_shape": 1.2})
    require_all_quantities(found)
    assert of(found, A13, 1)[labels.COUPLING_OF_LABELS] == pytest.approx([0.2] * 5)
    assert of(found, A13, 1)[labels.LSS_OF_LABELS] == pytest.approx([4] * 5)
    assert of(found, A13)[labels.TEST_ACCURACY] == pytest.approx([0.95, 0.9, 0.8, 0.6, 0.1])
    assert decided(A13, found).verdict == "reproduced"
    assert verdicts(decided(A13, of_labels({})))["random against true labels"] == "not reproduced"
    untrained = of_labels({"over_chance_all": 0.9, "line_shape": 1.2, "train_accuracy": 0.5})
    assert set(verdicts(decided(A13, untrained)).values()) == {"open"}


def test_the_decay_is_the_largest_with_which_networks_for_calibration_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[tuple[float, int]] = []

    def lowest(model: tuple[float, int], split: Any) -> float:
        tried.append(model)
        return 1.0 if model[0] <= 2e-3 else 0.9

    class Stand(labels.Subject):
        def trained(self, bench: Bench, seed: int) -> Any:
            return type("Trained", (), {"model": (self.training.weight_decay, seed)})

    monkeypatch.setattr(labels, "accuracy", lowest)
    monkeypatch.setattr("skipscope.papers.a.subjects.Subject", Stand)
    with RunFolder(tmp_path / "run", "study A") as run:
        bench = Bench("A.labels", run, preset="smoke", seed=0, device="cpu")
        settings = replace(labels.STUDY.presets["smoke"], decays=(5e-3, 2e-3, 1e-3))
        assert labels._chosen_decay(bench, settings) == 2e-3
        assert labels._chosen_decay(bench, replace(settings, decays=(5e-3, 3e-3))) == 3e-3
    assert {seed for _, seed in tried} == {0}
    assert "weight decay 0.002: networks for calibration fit at least 1" in load_run(run.path).record["notes"][1]


# -- neural collapse


def along(nc1: list[float]) -> xarray.Dataset:
    layers = numpy.stack([numpy.full(len(nc1), 7.0), numpy.array(nc1)], 1)
    return xarray.Dataset({"nc1": (("epoch", "layer"), layers)}, {"epoch": range(len(nc1))})


def coupled(values: list[float], seeds: int = 3) -> xarray.Dataset:
    return xarray.Dataset(
        {"coupling_all": (("seed", "epoch"), [values] * seeds)}, {"seed": range(seeds), "epoch": range(len(values))}
    )


def test_collapse_along_the_training_is_reported() -> None:
    found = collapse.along(coupled([0.9, 0.8, 0.7, 0.6]), dict.fromkeys(range(3), along([4, 2, 3, 1])), MNIST)
    assert found.values[collapse.SPEARMAN] == pytest.approx([0.8] * 3)
    assert found.values[collapse.NC1] == pytest.approx([0.25] * 3)
    assert found.values[collapse.COUPLING] == pytest.approx([2 / 3] * 3)
    decision = decided(A12, {A12: [found]}, "quick")
    assert decision.verdict == "open"
    assert [(one.subject, one.verdict) for one in decision.subjects] == [
        ("type1-mnist, along the training", "reported")
    ]


def population(over_chance: Callable[[float], float], without_decay: float = 1.0) -> Measured:
    """80 networks of 40 kinds, the last eight, which collapse the least, without decay."""
    numbers = numpy.arange(80)
    coupled = numpy.array([over_chance(number) for number in numbers])
    coupled[-8:] = without_decay
    data = {
        "case": [f"kind {number // 2}" for number in numbers],
        "seed": 1000 + numbers % 2,
        "weight_decay": numpy.where(numbers < 72, 5e-3, 0.0),
        "nc1": numpy.exp(numbers / 10.0),
        "over_chance_all": coupled,
    }
    return collapse.across(xarray.Dataset({key: ("network", value) for key, value in data.items()}), MNIST)


def test_collapsed_networks_align() -> None:
    rising = {A12: [population(lambda number: 0.3 + number / 200)]}
    require_all_quantities(rising)
    decision = decided(A12, rising)
    assert decision.verdict == "reproduced"
    assert decision.parts[0].networks == 80
    assert len(of(rising, A12)[collapse.PAIRS_WITHOUT_DECAY]) == 8
    assert decided(A12, {A12: [population(lambda number: 0.9 - number / 200)]}).verdict == "not reproduced"
    alike = decided(A12, {A12: [population(lambda number: 0.3 + number / 200, 0.5)]})
    assert alike.verdict == "inconclusive"
    assert "not specific" in alike.reason
