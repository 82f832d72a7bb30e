"""The studies of paper A that train: what is decided from known numbers, and whole runs at their smallest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope.papers.a.emergence import ALL_PAIRS, ENERGY, LSS, VARIABLES
from skipscope.papers.a.studies import alignment, collapse, counterfactuals
from skipscope.papers.a.studies.alignment import A1, A2, A3, A4, A5, A6, A7
from skipscope.papers.a.studies.alignment import STUDY as ALIGNMENT
from skipscope.papers.a.studies.collapse import A12
from skipscope.papers.a.studies.collapse import STUDY as COLLAPSE
from skipscope.papers.a.studies.counterfactuals import (
    A8,
    A9,
    A10,
    A11,
    A13,
    A16,
    CHANGES,
    EVIDENCE_OF,
    CounterfactualSettings,
    holds,
)
from skipscope.papers.a.studies.counterfactuals import STUDY as COUNTERFACTUALS
from skipscope.papers.a.subjects import TrainingSettings
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study
from skipscope.runs import RunFolder, load_run
from skipscope.runs.decisions import Decision
from skipscope.training import networks as trainings

STUDY_OF = {claim: study for study in (ALIGNMENT, COLLAPSE, COUNTERFACTUALS) for claim in study.claims}
RANDOM = {
    "line_shape": 3.3,
    "step_variation": 1.07,
    "over_chance_adjacent": 1.0,
    "over_chance_all": 1.0,
    "swapped": 0.97,
    "u1v1": 0.0,
    "energy": 0.75,
    "gap": 0.5,
    "r_squared": 0.4,
    "slope": 0.01,
    "r_squared_papers": 0.4,
    "log_log_slope": -0.1,
    "coupling_all": 0.97,
    "large": 40.0,
    "train_accuracy": 0.1,
}
ALIGNED = {
    "line_shape": 1.05,
    "step_variation": 0.1,
    "over_chance_adjacent": 0.4,
    "over_chance_all": 0.5,
    "swapped": 0.5,
    "u1v1": 0.9,
    "energy": 0.999,
    "gap": 0.01,
    "r_squared": 0.98,
    "slope": 1.0,
    "r_squared_papers": 0.98,
    "log_log_slope": -1.0,
    "coupling_all": 0.5,
    "large": 10.0,
    "train_accuracy": 1.0,
}


def fake(seeds: int = 3, start: dict[str, float] | None = None, **end: float | list[float]) -> xarray.Dataset:
    """Two epochs: of random networks and of aligned ones, unless it says otherwise; one number, or one per seed."""
    rows = {
        name: numpy.stack(
            [numpy.broadcast_to(value, seeds) for value in ((RANDOM | (start or {}))[name], (ALIGNED | end)[name])], 1
        )
        for name in RANDOM
    }
    return xarray.Dataset(
        {name: (("seed", "epoch"), values) for name, values in rows.items()},
        {"seed": range(seeds), "epoch": [0, 250]},
        {"classes": 10, "width": 64, "data": "mnist", "decay_budget": 14.4},
    )


def decided(claim: Claim, evidence: Evidence, preset: str = "full") -> Decision:
    return STUDY_OF[claim].decide(claim, evidence[claim], preset)


def require_all_quantities(found: Evidence) -> None:
    """Every quantity that criteria and controls refer to."""
    for claim, measured in found.items():
        assert {criterion.quantity for criterion in (*claim.criteria, *claim.controls)} <= set(measured)


def called(name: str, measured: Mapping[Quantity, Any]) -> Any:
    """The value of a quantity that is reported for a subject alone."""
    (value,) = [value for quantity, value in measured.items() if quantity.name == name]
    return value


# -- residual alignment

BAD = {
    A1: {"line_shape": 1.4},
    A2: {"step_variation": 0.4},
    A3: {"over_chance_adjacent": 0.8},
    A4: {"swapped": 0.95},
    A5: {"gap": 0.3},
    A7: {"slope": 0.1},
}
NO_CONTROL = {A1: {"line_shape": 1.1}, A3: {"over_chance_all": 0.8}, A5: {"energy": 0.95}}


@pytest.mark.parametrize("claim", BAD, ids=lambda claim: claim.id)
def test_aligned_networks_pass_and_others_do_not(claim: Claim) -> None:
    good, bad = ({"type1-mnist": fake(**changes)} for changes in ({}, BAD[claim]))
    assert decided(claim, alignment.evidence(good), "quick").verdict == "reproduced"
    assert decided(claim, alignment.evidence(bad), "quick").verdict == "not reproduced"
    others = [other for other in BAD if other != claim]
    assert [decided(other, alignment.evidence(bad)).verdict for other in others] == ["reproduced"] * len(others)


@pytest.mark.parametrize("claim", NO_CONTROL, ids=lambda claim: claim.id)
def test_networks_that_were_aligned_before_training_say_nothing(claim: Claim) -> None:
    found = alignment.evidence({"type1-mnist": fake(start=NO_CONTROL[claim])})
    assert decided(claim, found).verdict == "inconclusive"


def test_the_rank_of_narrow_networks_says_nothing() -> None:
    found = alignment.evidence({"type1-mnist": fake().assign_attrs(width=32)})
    assert found[A5][alignment.RELATIVE_WIDTH] == [3.2]
    assert decided(A5, found).verdict == "inconclusive"


def test_left_and_right_vectors_come_with_intervals_over_networks() -> None:
    found = alignment.evidence({"type1-mnist": fake(swapped=[0.4, 0.5, 0.6], u1v1=0.9)})[A4]
    swapped, left_on_right = alignment.INTERVALS.values()
    low, high = found[swapped]
    assert (low, high) == pytest.approx((0.5 - 0.2484, 0.5 + 0.2484), abs=1e-4)  # t of 2 degrees: 4.3027
    assert found[left_on_right] == pytest.approx([0.9, 0.9])
    assert swapped not in alignment.evidence({"type1-mnist": fake(1)})[A4]


def test_deciding_subjects_decide_and_the_others_stand_beside_them() -> None:
    subjects = {"type1-mnist": fake(), "type2-digits": fake(2, line_shape=2.0, energy=0.8, gap=0.4)}
    found = alignment.evidence(subjects, ("type1-mnist",))
    assert decided(A1, found).verdict == "reproduced"
    assert (found[A1][SEEDS], found[A1][alignment.NETWORKS]) == (3, "type1-mnist (mnist)")
    assert called("LSS, type2-digits", found[A1]) == [2.0, 2.0]
    everything = alignment.evidence(subjects)
    assert everything[A1][LSS] == [1.05] * 3 + [2.0] * 2
    assert everything[A1][SEEDS] == 2  # the fewest of a subject: networks on other data are no repetitions
    assert decided(A1, everything).verdict != "reproduced"
    beside = alignment.evidence({"type1-mnist": fake(), "type1-mnist-preactivation": fake(line_shape=3.0)})[A1]
    assert (beside[LSS], called("LSS, type1-mnist-preactivation", beside)) == ([1.05] * 3, [3.0] * 3)
    for of_both in (found, everything):  # of fully connected and of convolutional networks
        assert of_both[A5][ENERGY] == [0.999] * 3
        assert (of_both[A6][SEEDS], of_both[A6][ENERGY]) == (2, [0.8, 0.8])
        assert decided(A6, of_both).verdict == "reported"


def test_a_diverged_network_leaves_it_open() -> None:
    found = alignment.evidence({"type1-mnist": fake(line_shape=[1.05, 1.05, numpy.nan])})
    decision = decided(A1, found)
    assert decision.verdict == "inconclusive"
    assert "1 of 3 values are not a number" in decision.reason


def test_claims_name_what_is_measured() -> None:
    found = alignment.evidence({"type1-mnist": fake(), "type2-digits": fake()})
    assert set(found) == set(ALIGNMENT.claims)
    require_all_quantities(found)
    assert set(VARIABLES.values()) <= set(RANDOM)


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


def changed(change: str, settings: CounterfactualSettings | None = None, **answers: Any) -> Evidence:
    settings = settings or CounterfactualSettings()
    return EVIDENCE_OF[change](Answers(settings, **answers), settings)


def test_weight_decay() -> None:
    found = changed("decay", base=fake(), without_weight_decay=fake(line_shape=4.2))
    assert decided(A16, found, "quick").verdict == "reproduced"
    found = changed("decay", base=fake(), without_weight_decay=fake(line_shape=1.1))
    assert decided(A16, found, "quick").verdict == "not reproduced"
    found = changed("decay", base=fake(line_shape=2.0), without_weight_decay=fake(line_shape=4.2))
    assert decided(A16, found, "quick").verdict == "inconclusive"


def of_classes(large: Callable[[int], float], seeds: int = 1) -> Evidence:
    settings = CounterfactualSettings(classes=(2, 3, 5, 7), class_networks=seeds)
    answers = {f"{count}_classes": fake(seeds, large=large(count)) for count in settings.classes}
    return changed("classes", settings, base=fake(3, large=[large(10), 99, 99]), **answers)


def test_large_singular_values_follow_the_classes() -> None:
    found = of_classes(lambda count: count - 0.5)
    assert found[A9][counterfactuals.CLASSES] == [2, 3, 5, 7, 10]
    assert found[A9][counterfactuals.RANK_TREND] == pytest.approx([1])
    assert found[A9][counterfactuals.LARGEST_RANK] == pytest.approx([0.95])
    assert decided(A9, found, "quick").verdict == "reproduced"
    found = of_classes(lambda count: 20.0 - count)
    assert found[A9][counterfactuals.RANK_TREND] == pytest.approx([-1])
    assert decided(A9, found, "quick").verdict == "not reproduced"
    found = of_classes(lambda count: count + 1.0)
    assert found[A9][counterfactuals.LARGEST_RANK] == pytest.approx([1.5])
    assert decided(A9, found, "quick").verdict == "not reproduced"


def test_a_size_holds_if_two_thirds_of_its_seeds_do() -> None:
    settings = CounterfactualSettings(widths=(32, 64), depths=(8,))
    some, most = fake(line_shape=[1.05, 3.0, 3.0]), fake(line_shape=[1.05, 1.05, 3.0])
    found = changed("sizes", settings, **{"8_blocks_of_width_32": most, "8_blocks_of_width_64": fake()})
    assert found[A10][counterfactuals.SIZES] == "32 x 8, 64 x 8"
    assert found[A10][counterfactuals.HOLDS_AT_SIZE[A1]] == [1.0, 1.0]
    assert decided(A10, found).verdict == "reproduced"
    found = changed("sizes", settings, **{"8_blocks_of_width_32": some, "8_blocks_of_width_64": fake()})
    assert found[A10][counterfactuals.HOLDS_AT_SIZE[A1]] == [0.0, 1.0]
    assert decided(A10, found).verdict == "not reproduced"
    assert decided(A10, found, "quick").verdict == "open"


ABSENT = {"over_chance_all": 1.0, "energy": 0.6, "r_squared": 0.2}


def of_skips(with_skips: xarray.Dataset, without: xarray.Dataset) -> Evidence:
    answers = {"with_skips": with_skips, "without_skips": without}
    return changed("skips", **answers)


def test_alignment_goes_away_without_skips() -> None:
    found = of_skips(fake(), fake(**ABSENT))
    assert decided(A8, found).verdict == "reproduced"
    assert decided(A8, found, "quick").verdict == "open"
    assert decided(A8, of_skips(fake(), fake())).verdict == "not reproduced"
    assert decided(A8, of_skips(fake(), fake(energy=0.6, r_squared=0.2))).verdict == "not reproduced"
    found = of_skips(fake(), fake(start={"line_shape": 12.0}, line_shape=6.0))
    assert found[A8][counterfactuals.LSS_OF_SKIPS["without"]] == pytest.approx([0.5] * 3)


def test_skips_say_nothing_where_networks_with_them_do_not_align_or_train() -> None:
    assert decided(A8, of_skips(fake(**ABSENT), fake(**ABSENT))).verdict == "inconclusive"
    assert decided(A8, of_skips(fake(), fake(**ABSENT, train_accuracy=0.8))).verdict == "inconclusive"


def test_networks_with_and_without_skips_are_trained_alike() -> None:
    settings = CounterfactualSettings(long_rate=0.01, long_epochs=7, long_clip=0.5)
    answers = Answers(settings, with_skips=fake(), without_skips=fake())
    EVIDENCE_OF["skips"](answers, settings)
    (one, first), (other, second) = answers.asked
    assert one == other == replace(settings, rate=0.01, epochs=7, clip=0.5)
    assert (first.get("options"), second["options"]) == (None, "-noskips")


def test_random_labels() -> None:
    found = changed("labels", base=fake(), random_labels=fake(over_chance_all=0.9, line_shape=1.2))
    assert found[A13][counterfactuals.COUPLING_OF_LABELS] == pytest.approx([0.2] * 3)
    assert found[A13][counterfactuals.LSS_OF_LABELS] == pytest.approx([4] * 3)
    assert decided(A13, found).verdict == "reproduced"
    assert decided(A13, changed("labels", base=fake(), random_labels=fake())).verdict == "not reproduced"
    untrained = fake(over_chance_all=0.9, line_shape=1.2, train_accuracy=0.5)
    assert decided(A13, changed("labels", base=fake(), random_labels=untrained)).verdict == "inconclusive"


def test_stochastic_depth_is_reported_with_an_interval() -> None:
    base, some, many = fake(), fake(line_shape=[1.15, 1.25, 1.35]), fake(over_chance_all=0.4)
    answers = Answers(CounterfactualSettings(), base=base, stochastic_depth=some)
    found = EVIDENCE_OF["drop"](answers, CounterfactualSettings())[A11]
    assert [differs.get("options") for _, differs in answers.asked] == [None, "-drop20", "-drop50"]
    assert found[counterfactuals.DROP_CHANGE[LSS, 20]] == pytest.approx([0.1, 0.2, 0.3])
    low, high = found[counterfactuals.DROP_INTERVAL[LSS, 20]]
    assert (low + high) / 2 == pytest.approx(0.2)
    assert high - low == pytest.approx(2 * 4.302653 * 0.1 / 3**0.5)  # t of two degrees of freedom
    one = changed("drop", base=fake(1), stochastic_depth=many.isel(seed=[0]))[A11]
    assert one[counterfactuals.DROP_CHANGE[ALL_PAIRS, 50]] == pytest.approx([-0.1])
    assert not any("interval" in quantity.name for quantity in one)


def test_a_claim_holds_seed_by_seed() -> None:
    assert holds(A1, fake(line_shape=[1.0, 1.15, 1.2])) == [1, 1, 0]
    assert holds(A5, fake(energy=[0.999, 0.9, 0.999], gap=[0.01, 0.01, 0.2])) == [1, 0, 0]
    assert holds(A7, fake(r_squared=[0.98, 0.98, numpy.nan], slope=[1.0, 2.5, 1.0])) == [1, 0, 0]


# -- neural collapse


def along(nc1: list[float]) -> xarray.Dataset:
    layers = numpy.stack([numpy.full(len(nc1), 7.0), numpy.array(nc1)], 1)
    return xarray.Dataset({"nc1": (("epoch", "layer"), layers)}, {"epoch": range(len(nc1))})


def coupled(values: list[float], seeds: int = 3) -> xarray.Dataset:
    return xarray.Dataset(
        {"coupling_all": (("seed", "epoch"), [values] * seeds)}, {"seed": range(seeds), "epoch": range(len(values))}
    )


def test_collapse_comes_with_alignment() -> None:
    found = collapse.evidence(coupled([0.9, 0.8, 0.7, 0.6]), dict.fromkeys(range(3), along([4, 2, 3, 1])))
    assert found[A12][collapse.SPEARMAN] == pytest.approx([0.8] * 3)
    assert found[A12][collapse.NC1] == pytest.approx([0.25] * 3)
    assert found[A12][collapse.COUPLING] == pytest.approx([2 / 3] * 3)
    assert decided(A12, found, "quick").verdict == "reproduced"
    for nc1, m in (([1, 2, 3, 4], [0.9, 0.8, 0.7, 0.6]), ([4, 3, 2, 1], [0.9, 0.6, 0.7, 0.95])):
        found = collapse.evidence(coupled(m), dict.fromkeys(range(3), along(nc1)))
        assert decided(A12, found, "quick").verdict == "not reproduced"


# -- whole runs


def run_of(study: Study, run: RunFolder, settings: Any = None) -> Evidence:
    bench = Bench(study.id, run, preset="smoke", seed=0, device="cpu")
    return study.run(bench, settings or study.presets["smoke"])


@pytest.mark.slow
def test_alignment_and_collapse_look_at_the_same_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = trainings._make

    def counted(network: trainings.Network, *rest: Any) -> bytes:
        made.append(network.model)
        return make(network, *rest)

    monkeypatch.setattr(trainings, "_make", counted)
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))
    settings = replace(ALIGNMENT.presets["smoke"], subjects=("type1-digits",))
    with RunFolder(tmp_path / "run", "study A") as run:
        found = dict(run_of(ALIGNMENT, run, settings))
        before = set(run.path.glob("data/type1-*"))
        found |= run_of(COLLAPSE, run)
    assert made == ["type1-digits-w50-b3"]
    assert set(run.path.glob("data/type1-*")) == before
    assert set(found) == {*ALIGNMENT.claims, *COLLAPSE.claims}
    assert found[A6][SEEDS] == 0
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
            assert (numpy.diff(data["value"].values, axis=-1) <= 1e-12).all()


@pytest.mark.slow
def test_counterfactuals_at_their_smallest(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "study A") as run:
        found = run_of(COUNTERFACTUALS, run)
    assert set(found) == {A9, A16}
    assert found[A9][counterfactuals.CLASSES] == [2, 10]
    for claim in found:
        assert decided(claim, found, "smoke").verdict == "open"


@pytest.mark.slow
def test_all_changes_and_a_convolutional_network(tmp_path: Path) -> None:
    settings = replace(COUNTERFACTUALS.presets["smoke"], changes=CHANGES)
    with RunFolder(tmp_path / "run", "study A") as run:
        found = run_of(COUNTERFACTUALS, run, settings)
    with RunFolder(tmp_path / "other", "study A") as other:
        rank = run_of(ALIGNMENT, other)[A6]
    assert set(found) == set(COUNTERFACTUALS.claims)
    assert len(found[A10][counterfactuals.HOLDS_AT_SIZE[A1]]) == 2
    assert found[A8][SEEDS] == rank[SEEDS] == 1
    saved = load_run(run.path)
    titles = [title for name in saved.names if (title := saved.dataset(name).attrs.get("title"))]
    assert len(set(titles)) == len(titles)
    require_all_quantities(found)
