"""The studies of paper A that train: what is decided from known numbers, and whole runs at their smallest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope.papers.a.quantities import ALL_PAIRS, LSS, VARIABLES, WIDE_VARIABLES
from skipscope.papers.a.studies import alignment, counterfactuals
from skipscope.papers.a.studies.alignment import A1, A2, A3, A4, A5, A6, A7
from skipscope.papers.a.studies.alignment import STUDY as ALIGNMENT
from skipscope.papers.a.studies.collapse import STUDY as COLLAPSE
from skipscope.papers.a.studies.counterfactuals import A11, A16, CHANGES, EVIDENCE_OF, CounterfactualSettings
from skipscope.papers.a.studies.counterfactuals import STUDY as COUNTERFACTUALS
from skipscope.papers.a.subjects import ENDS, TrainingSettings
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Study
from skipscope.runs import RunFolder, load_run
from skipscope.training import network_fleets
from skipscope.training import networks as trainings
from tests.papers.a.known import (
    MNIST,
    POPULATIONS,
    RANDOM,
    decided,
    drawn,
    fake,
    of,
    require_all_quantities,
    verdicts,
)

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

    monkeypatch.setattr(network_fleets, "make", counted)
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
    assert sorted(filter(None, kinds)) == [
        "alignment",
        "alignment_grids",
        "collapse_along",
        "emergence",
        "trajectories",
    ]
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


def test_networks_with_preactivation_are_measured_as_the_others_are(tmp_path: Path) -> None:
    """Their form is no change that is compared with something: they have all quantities, K = 30 among them."""
    settings = replace(ALIGNMENT.presets["smoke"], subjects=("type1-digits-preactivation",))
    with RunFolder(tmp_path / "run", "study A.alignment") as run:
        found = run_of(ALIGNMENT, run, settings)
    (measured,) = found[A3]
    assert measured.subject == "type1-digits-preactivation"
    assert alignment.WIDE_ADJACENT in measured.values
