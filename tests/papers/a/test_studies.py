"""The studies of paper A that train: what is decided from known numbers, and whole runs at their smallest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope.papers.a.quantities import ALL_PAIRS, LSS, VARIABLES, WIDE_VARIABLES, trend
from skipscope.papers.a.studies import alignment, classes, collapse, counterfactuals, labels, sizes, skips
from skipscope.papers.a.studies.alignment import A1, A2, A3, A4, A5, A6, A7
from skipscope.papers.a.studies.alignment import STUDY as ALIGNMENT
from skipscope.papers.a.studies.classes import A9
from skipscope.papers.a.studies.collapse import A12
from skipscope.papers.a.studies.collapse import STUDY as COLLAPSE
from skipscope.papers.a.studies.counterfactuals import A11, A16, CHANGES, EVIDENCE_OF, CounterfactualSettings
from skipscope.papers.a.studies.counterfactuals import STUDY as COUNTERFACTUALS
from skipscope.papers.a.studies.labels import A13
from skipscope.papers.a.studies.sizes import A10
from skipscope.papers.a.studies.skips import A8
from skipscope.papers.a.subjects import ENDS, TrainingSettings
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Quantity, Study
from skipscope.runs import RunFolder, load_run
from skipscope.runs.decisions import Decision
from skipscope.training import networks as trainings

POPULATIONS = (skips.STUDY, classes.STUDY, sizes.STUDY, labels.STUDY)
STUDY_OF = {claim: study for study in (ALIGNMENT, COLLAPSE, COUNTERFACTUALS, *POPULATIONS) for claim in study.claims}
MNIST = "type1-mnist"
RANDOM = {
    "line_shape": 3.3,
    "step_variation": 1.07,
    "over_chance_adjacent": 1.0,
    "over_chance_all": 1.0,
    "wide_over_chance_adjacent": 1.0,
    "wide_over_chance_all": 1.0,
    "swapped": 0.97,
    "swapped_last_half": 0.97,
    "swapped_over_chance": 1.0,
    "u1v1": 0.0,
    "u1v1_last_half": 0.0,
    "energy": 0.75,
    "gap": 0.5,
    "r_squared": 0.4,
    "slope": 0.01,
    "r_squared_papers": 0.4,
    "log_log_slope": -0.1,
    "coupling_all": 0.97,
    "large": 40.0,
    "train_accuracy": 0.1,
    "test_accuracy": 0.1,
}
ALIGNED = {
    "line_shape": 1.05,
    "step_variation": 0.1,
    "over_chance_adjacent": 0.4,
    "over_chance_all": 0.5,
    "wide_over_chance_adjacent": 0.5,
    "wide_over_chance_all": 0.6,
    "swapped": 0.5,
    "swapped_last_half": 0.5,
    "swapped_over_chance": 0.52,
    "u1v1": 0.9,
    "u1v1_last_half": 0.95,
    "energy": 0.999,
    "gap": 0.01,
    "r_squared": 0.98,
    "slope": 1.0,
    "r_squared_papers": 0.98,
    "log_log_slope": -1.0,
    "coupling_all": 0.5,
    "large": 10.0,
    "train_accuracy": 1.0,
    "test_accuracy": 0.95,
}


def fake(seeds: int = 8, start: dict[str, float] | None = None, **end: float | list[float]) -> xarray.Dataset:
    """Two epochs: of random networks and of aligned ones, unless it says otherwise; one number, or one per seed."""
    rows = {
        name: numpy.stack(
            [numpy.broadcast_to(value, seeds) for value in ((RANDOM | (start or {}))[name], (ALIGNED | end)[name])], 1
        )
        for name in RANDOM
    }
    return xarray.Dataset(
        {name: (("seed", "epoch"), values) for name, values in rows.items()},
        {"seed": range(1000, 1000 + seeds), "epoch": [0, 250]},
        {"classes": 10, "width": 64, "data": "mnist", "decay_budget": 14.4, "weight_decay": 5e-3},
    )


def drawn(**values: float) -> xarray.Dataset:
    """Of 64 untrained networks."""
    return xarray.Dataset({name: ("draw", numpy.full(64, value)) for name, value in (RANDOM | values).items()})


def decided(claim: Claim, evidence: Evidence, preset: str = "full") -> Decision:
    return STUDY_OF[claim].decide(claim, evidence[claim], preset)


def of(found: Evidence, claim: Claim, place: int = 0) -> Mapping[Quantity, Any]:
    """What was measured for a claim on a subject."""
    return list(found[claim])[place].values


def verdicts(decision: Decision) -> dict[str, str]:
    return {part.name: part.verdict for part in decision.parts}


def require_all_quantities(found: Evidence) -> None:
    """Every quantity that criteria and controls refer to, on the subjects together."""
    for claim, measured in found.items():
        known = {quantity for one in measured for quantity in one.values}
        assert {rule.quantity for rule in claim.rules} <= known, claim.id


# -- residual alignment


def aligned(drawn_as: dict[str, float] | None = None, **end: float | list[float]) -> Evidence:
    return alignment.evidence({MNIST: (fake(**end), drawn(**(drawn_as or {})))})


BAD = {
    A1: {"line_shape": 1.4},
    A2: {"step_variation": 0.4},
    A3: {"over_chance_adjacent": 0.8, "wide_over_chance_all": 0.8},
    A4: {"swapped": 0.95, "swapped_last_half": 0.95, "swapped_over_chance": 0.97},
    A5: {"gap": 0.3},
    A7: {"slope": 0.1, "r_squared": 0.5},
}
NO_CONTROL = {
    A1: {"line_shape": 1.2},
    A2: {"step_variation": 0.5},
    A3: {"over_chance_all": 0.8, "wide_over_chance_all": 0.8},
    A4: {"swapped": 0.5, "swapped_last_half": 0.5, "swapped_over_chance": 0.5},
    A5: {"energy": 0.95},
    A7: {"r_squared": 0.95, "slope": 0.7},
}


@pytest.mark.parametrize("claim", BAD, ids=lambda claim: claim.id)
def test_aligned_networks_pass_and_others_do_not(claim: Claim) -> None:
    good, bad = aligned(), aligned(**BAD[claim])
    assert decided(claim, good, "quick").verdict == "reproduced"
    assert decided(claim, bad, "quick").verdict == "not reproduced"
    others = [other for other in BAD if other != claim]
    assert [decided(other, bad).verdict for other in others] == ["reproduced"] * len(others)


@pytest.mark.parametrize("claim", NO_CONTROL, ids=lambda claim: claim.id)
def test_networks_that_were_aligned_before_training_say_nothing(claim: Claim) -> None:
    decision = decided(claim, aligned(NO_CONTROL[claim]))
    assert set(verdicts(decision).values()) == {"inconclusive"}
    assert "not specific" in decision.reason


def test_untrained_networks_are_compared_by_their_mean() -> None:
    found = alignment.evidence({MNIST: (fake(2, line_shape=[1.1, 1.2]), drawn(line_shape=3.0))})
    assert of(found, A1)[alignment.STRAIGHTENED] == pytest.approx([20, 10])
    assert len(of(found, A1)[alignment.LSS_AT_START]) == 64
    found = alignment.evidence({MNIST: (fake(2, {"step_variation": 0.5}, step_variation=[0.1, 0.2]), drawn())})
    assert of(found, A2)[alignment.STEP_COV_LEFT] == pytest.approx([0.2, 0.4])  # its own start, not that of the draws
    assert of(found, A2)[alignment.STEP_COV_AT_START] == pytest.approx([1.07] * 64)


def test_draws_without_jacobians_leave_those_to_the_networks_themselves() -> None:
    few = drawn()[["line_shape", "step_variation"]]
    found = alignment.evidence({"type2-cifar10": (fake(5, {"swapped": 0.93}), few)})
    assert of(found, A4)[alignment.SWAPPED_AT_START] == [0.93] * 5


def test_steps_of_a_network_are_compared_with_a_threshold_and_with_its_start() -> None:
    decision = decided(A2, aligned(step_variation=0.3), "quick")
    assert verdicts(decision) == {"nearly equal steps": "not reproduced", "a third of what it was": "reproduced"}
    assert decision.verdict == "partly reproduced"


def test_forms_of_left_and_right_vectors() -> None:
    decision = decided(A4, aligned(swapped=0.85, u1v1=0.5, swapped_over_chance=0.87), "quick")
    assert verdicts(decision) == {
        "weak form": "reproduced",
        "strong form": "not reproduced",
        "strong form, last half of the blocks": "reproduced",
        "over chance": "reproduced",
    }


def test_networks_that_do_not_fit_leave_common_vectors_open() -> None:
    found = aligned(train_accuracy=[1.0] * 7 + [0.98])
    assert decided(A3, found).verdict == "open"
    assert "1 of 8 networks have a train accuracy below 0.99, the lowest 0.98" in decided(A3, found).reason
    assert decided(A1, found).verdict == "reproduced"


def test_the_rank_of_narrow_networks_says_nothing() -> None:
    found = alignment.evidence({MNIST: (fake().assign_attrs(width=32), drawn())})
    assert of(found, A5)[alignment.RELATIVE_WIDTH] == 3.2
    assert decided(A5, found).verdict == "inconclusive"


def test_deciding_subjects_decide_and_the_others_stand_beside_them() -> None:
    other = fake(5, line_shape=1.4, energy=0.8, gap=0.4)
    found = alignment.evidence({MNIST: (fake(), drawn()), "type2-cifar10": (other, drawn())})
    decision = decided(A1, found)
    assert decision.verdict == "reproduced"
    assert [(one.subject, one.networks, one.verdict) for one in decision.subjects] == [
        (MNIST, 8, "reproduced"),
        ("type2-cifar10", 5, "not reproduced"),
    ]
    assert [one.subject for one in found[A5]] == [MNIST]  # of fully connected and of convolutional networks
    assert [one.subject for one in found[A6]] == ["type2-cifar10"]
    assert decided(A6, found).verdict == "reported"
    alone = alignment.evidence({"type2-cifar10": (other, drawn())})
    assert decided(A1, alone).verdict == "open"
    few = alignment.evidence({MNIST: (fake(5), drawn())})
    assert decided(A1, few).verdict == "open"
    assert "5 of the 8 networks" in decided(A1, few).reason


def test_a_diverged_network_leaves_it_open() -> None:
    decision = decided(A1, aligned(line_shape=[1.05] * 7 + [numpy.nan]))
    assert decision.verdict == "inconclusive"
    assert "1 of 8 values are not a number" in decision.reason


def test_claims_name_what_is_measured() -> None:
    found = alignment.evidence({MNIST: (fake(), drawn()), "type2-digits": (fake(), drawn())})
    assert set(found) == set(ALIGNMENT.claims)
    require_all_quantities(found)
    assert {*VARIABLES.values(), *WIDE_VARIABLES.values()} <= set(RANDOM)


# -- one thing changed


class Answers:
    """Stands in for what is trained and measured: answers by the title of a subject, and keeps what was asked."""

    def __init__(self, settings: CounterfactualSettings, **answers: xarray.Dataset) -> None:
        self.settings, self.answers = settings, answers
        self.asked: list[tuple[TrainingSettings, dict[str, Any]]] = []

    def __call__(self, training: TrainingSettings | None = None, **differs: Any) -> xarray.Dataset:
        self.asked.append((training or self.settings, differs))
        words = str(differs.get("title", "base")).split(",")[0]
        return self.answers[words.replace(" ", "_")]


def changed(change: str, **answers: Any) -> Evidence:
    settings = CounterfactualSettings()
    found = EVIDENCE_OF[change](Answers(settings, **answers), settings)
    return {claim: [Measured(values, MNIST, seeds)] for claim, (values, seeds) in found.items()}


def test_weight_decay() -> None:
    found = changed("decay", base=fake(), without_weight_decay=fake(line_shape=4.2))
    assert decided(A16, found, "quick").verdict == "reproduced"
    found = changed("decay", base=fake(), without_weight_decay=fake(line_shape=1.1))
    assert decided(A16, found, "quick").verdict == "not reproduced"
    found = changed("decay", base=fake(line_shape=2.0), without_weight_decay=fake(line_shape=4.2))
    assert decided(A16, found, "quick").verdict == "inconclusive"
    found = changed("decay", base=fake(), without_weight_decay=fake(5, line_shape=4.2))
    assert decided(A16, found, "quick").verdict == "open"


def test_stochastic_depth_is_reported_with_an_interval() -> None:
    base, some, many = fake(3), fake(3, line_shape=[1.15, 1.25, 1.35]), fake(3, over_chance_all=0.4)
    answers = Answers(CounterfactualSettings(), base=base, stochastic_depth=some)
    found, _ = EVIDENCE_OF["drop"](answers, CounterfactualSettings())[A11]
    assert [differs.get("options") for _, differs in answers.asked] == [None, "-drop20", "-drop50"]
    assert found[counterfactuals.DROP_CHANGE[LSS, 20]] == pytest.approx([0.1, 0.2, 0.3])
    low, high = found[counterfactuals.DROP_INTERVAL[LSS, 20]]
    assert (low + high) / 2 == pytest.approx(0.2)
    assert high - low == pytest.approx(2 * 4.302653 * 0.1 / 3**0.5)  # t of two degrees of freedom
    one = of(changed("drop", base=fake(1), stochastic_depth=many.isel(seed=[0])), A11)
    assert one[counterfactuals.DROP_CHANGE[ALL_PAIRS, 50]] == pytest.approx([-0.1])
    assert not any("interval" in quantity.name for quantity in one)
    assert decided(A11, changed("drop", base=base, stochastic_depth=some)).verdict == "reported"


# -- populations


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


# -- whole runs


def run_of(study: Study, run: RunFolder, settings: Any = None) -> Evidence:
    bench = Bench(study.id, run, preset="smoke", seed=0, device="cpu")
    return study.evidence(bench, settings or study.presets["smoke"])


@pytest.mark.slow
def test_alignment_and_collapse_look_at_the_same_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = trainings.make

    def counted(network: trainings.Network, *rest: Any) -> bytes:
        made.append(network.model)
        return make(network, *rest)

    monkeypatch.setattr(trainings, "make", counted)
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))
    settings = replace(ALIGNMENT.presets["smoke"], subjects=("type1-digits",))
    with RunFolder(tmp_path / "run", "study A") as run:
        found = dict(run_of(ALIGNMENT, run, settings))
        before = set(run.path.glob("data/type1-*"))
        found |= run_of(COLLAPSE, run, replace(COLLAPSE.presets["smoke"], decays=()))
    assert made == ["type1-digits-w50-b3"]
    assert set(run.path.glob("data/type1-*")) == before
    assert set(found) == {*ALIGNMENT.claims, *COLLAPSE.claims}
    assert not found[A6]
    require_all_quantities({claim: found[claim] for claim in (A1, A2, A3, A4, A5, A7)})
    assert found[A1][0].seeds == (1000,)
    assert len(of(found, A3)[alignment.WIDE_AT_START]) == settings.untrained == 2
    saved = load_run(tmp_path / "run")
    kinds = [saved.dataset(name).attrs.get("measure") for name in saved.names]
    assert sorted(filter(None, kinds)) == ["alignment", "collapse_along", "emergence", "trajectories"]
    for name in saved.names:
        data = saved.dataset(name)
        if data.attrs.get("measure") == "emergence":
            assert data["epoch"].values.tolist() == [0, 1, 2]
            assert (data["line_shape"] >= 1).all()
            assert ((data["energy"] > 0) & (data["energy"] <= 1)).all()
            assert data["r_squared"].notnull().all()
            assert data["wide_over_chance_all"].isnull().values.tolist() == [[True, True, False]]
            assert (numpy.diff(data["value"].values, axis=-1) <= 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("study", [*POPULATIONS, COLLAPSE], ids=lambda study: study.name)
def test_populations_at_their_smallest(study: Study, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "study A") as run:
        found = run_of(study, run)
    assert set(found) == set(study.claims)
    for claim in found:
        assert decided(claim, found, "smoke").verdict == "open"
    saved = load_run(run.path)
    titles = [title for name in saved.names if (title := saved.dataset(name).attrs.get("title"))]
    assert len(set(titles)) == len(titles) - (study is COLLAPSE)  # which shows one network twice


@pytest.mark.slow
def test_counterfactuals_and_a_convolutional_network(tmp_path: Path) -> None:
    settings = replace(COUNTERFACTUALS.presets["smoke"], changes=CHANGES)
    with RunFolder(tmp_path / "run", "study A") as run:
        found = run_of(COUNTERFACTUALS, run, settings)
    with RunFolder(tmp_path / "other", "study A") as other:
        rank = run_of(ALIGNMENT, other)
    assert set(found) == set(COUNTERFACTUALS.claims)
    assert found[A16][0].seeds == rank[A6][0].seeds == (1000,)
    assert decided(A16, found, "smoke").verdict == "open"
    require_all_quantities(found)
    for name in load_run(run.path).names:
        data = load_run(run.path).dataset(name)
        if data.attrs.get("title") == "without weight decay":
            assert data["epoch"].values.tolist() == [round(end * settings.epochs) for end in ENDS]
