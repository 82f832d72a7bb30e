"""The studies of paper B that train: their grids and slopes, whole runs at their smallest, and what would not pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.errors import InputError
from skipscope.papers.b.alike import apart, between_seeds, farthest
from skipscope.papers.b.learning_rates import (
    flat,
    log_excess,
    lowest,
    own_rates,
    rate_of,
    trained_at_best_rate,
    tuned,
)
from skipscope.papers.b.networks import Moments, Samples, ShortcutSpec, ensemble, train_ensemble
from skipscope.papers.b.studies import initial, learning, norms, shortcuts
from skipscope.papers.b.studies.initial import (
    B20,
    BEFORE_TRAINING,
    CONDITION_FLOOR,
    CONDITIONS_APART,
    FIGURE7_DEPTHS,
    LOSS_FLOOR,
)
from skipscope.papers.b.studies.learning import B10, B11, B12, B13, Case, LearningSettings
from skipscope.papers.b.studies.learning import STUDY as LEARNING
from skipscope.papers.b.studies.norms import B14, B22, NormSettings
from skipscope.papers.b.studies.norms import STUDY as NORMS
from skipscope.papers.b.studies.shortcuts import B19, ShortcutSettings
from skipscope.papers.b.studies.shortcuts import STUDY as SHORTCUT_DEPTHS
from skipscope.papers.b.subjects import ARCHITECTURES
from skipscope.papers.kit import Bench, Claim, Measured, Study
from skipscope.papers.kit.estimates import Difference
from skipscope.papers.kit.running import together
from skipscope.runs import RunFolder, load_run
from skipscope.runs.decisions import Decision
from tests.papers.b.evidence import missing
from tests.papers.conftest import SmokeRun

STUDIES = (LEARNING, NORMS, SHORTCUT_DEPTHS)
ALIKE = (initial.LOSSES_APART, initial.LOSS_FLOOR, initial.CURVES_APART, initial.CURVE_FLOOR)
AT_SMOKE = (6, 12, 24)  # depths
NOT_AT_SMOKE = {  # what the smallest runs do not measure: other depths, and networks that need a GPU
    B11: {ratio for (_, depth), ratio in learning.RATE_RATIO.items() if depth not in AT_SMOKE},
    B20: {
        *(by_depth[d] for by_depth in ALIKE for d in by_depth if d not in AT_SMOKE),
        CONDITIONS_APART,
        CONDITION_FLOOR,
    },
    B14: {norms.NORM_SLOPE["residual"], norms.RESIDUAL_SLOPE_IN_TRAINING},
    B19: set(shortcuts.CHANGE.values()),
    B22: {norms.RESIDUAL_BRANCH_SLOPE},
}


def bowl(centre: float, limit: float = numpy.inf) -> Any:
    """Losses of two seeds, lowest at a learning rate; they diverge above a limit."""

    def losses(rates: list[float]) -> numpy.ndarray:
        found = 1 + (numpy.log10(numpy.array(rates)) - centre) ** 2
        found[numpy.array(rates) > limit] = numpy.inf
        return numpy.stack([found, 1.1 * found])

    return losses


@pytest.mark.parametrize("centre", [-4.0, -2.5, -0.5, 0.0, 1.5])
@pytest.mark.parametrize("per_decade", [2, 4])
def test_the_grid_grows_until_the_best_rate_is_inside(centre: float, per_decade: int) -> None:
    rates, losses = tuned(bowl(centre), per_decade)
    best = lowest(losses)
    assert 0 < best < len(rates) - 1
    assert rates[best] == pytest.approx(10**centre, rel=1e-3)
    assert rates == [rate_of(k, per_decade) for k in range(round(numpy.log10(rates[0]) * per_decade), 99)][: len(rates)]
    assert losses.shape == (2, len(rates))


def test_a_rate_below_divergence_is_inside() -> None:
    rates, losses = tuned(bowl(1.0, limit=2.0), 2)
    assert rates[lowest(losses)] == 1.0
    assert numpy.isinf(losses[:, -1]).all()


def test_the_grid_ends_somewhere() -> None:
    rates, losses = tuned(bowl(9.0), 2)
    assert lowest(losses) == len(rates) - 1
    assert rates[-1] == 100.0
    rates, losses = tuned(bowl(0.0, limit=0.0), 2)
    assert (rates[0], lowest(losses)) == (1e-5, 0)


def test_losses_that_are_alike_have_no_best_rate() -> None:
    asked = []

    def losses(rates: list[float]) -> numpy.ndarray:
        asked.extend(rates)
        return numpy.stack([0.5 - 1e-4 * numpy.array(rates)] * 2)

    assert len(tuned(losses, 2)[0]) == len(asked) == 4
    assert flat(losses([0.01, 0.1, 1.0]))
    assert not flat(losses([0.1, 1.0]))
    assert not flat(numpy.array([[1.0, 1.1, 1.0]]))
    assert not flat(numpy.array([[1.0, 1.0, numpy.inf]]))
    assert not flat(numpy.array([[1.0, 1.001, 1.0]]), 0.99)


def test_plain_networks_have_as_many_relus() -> None:
    two, plain = (ARCHITECTURES[name].spec(8, "relu") for name in ("2-shortcut", "xavier"))
    assert (plain.n, plain.unit_depth) == (0, 2)
    assert [spec.after(layer) is torch.relu for spec in (two, plain) for layer in range(4)] == [True, False] * 4
    assert ARCHITECTURES["xavier"].spec(8, "linear").linear


def bench_in(path: Path, study: Study, preset: str = "smoke") -> tuple[RunFolder, Bench]:
    run = RunFolder(path, f"study {study.id}")
    return run, Bench(study.id, run, preset=preset, seed=0, device="cpu")


def test_what_is_learnt_is_at_the_best_rate(tmp_path: Path) -> None:
    run, bench = bench_in(tmp_path / "run", LEARNING)
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    data = Moments.of(Samples(x, x.flip(1)))
    with run:
        found = trained_at_best_rate(
            bench,
            ShortcutSpec(4, 3),
            data,
            "zero",
            calibration=3,
            networks=4,
            steps=50,
            per_decade=2,
            attrs={"kind": "a"},
            every_rate=True,
        )
    best = found.sel(rate=found.attrs["best_rate"])
    numpy.testing.assert_array_equal(best["loss"], found["final"])
    numpy.testing.assert_array_equal(found["curve"].isel(step=-1), found["log_excess"])
    assert (found["calibration"].mean("calibration_seed") >= best["calibration"].mean()).all()
    assert found["calibration_seed"].values.tolist() == [0, 1, 2]
    assert found["seed"].values.tolist() == [1000, 1001, 1002, 1003]
    assert numpy.isfinite(found["loss"].isel(rate=0)).all()
    assert (found.attrs["kind"], found.attrs["depth"], found.attrs["precision"]) == ("a", 4, "float64")
    assert found.attrs["on_edge"] == found.attrs["flat"] == 0


def test_rounding_is_no_distance() -> None:
    assert log_excess(numpy.array([0.1, 0.1 - 1e-17, 1.1]), 0.1).tolist() == [-15, -15, 0]


class KilledError(Exception):
    pass


def test_a_killed_run_goes_on_with_the_next_round_of_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    data = Moments.of(Samples(x, x.flip(1)))
    asked: list[list[float]] = []
    allowed = 99

    def counted(*arguments: Any, **options: Any) -> Any:
        if len(asked) == allowed:
            raise KilledError
        asked.append(sorted(set(arguments[3])))
        return train_ensemble(*arguments, **options)

    def found(path: Path) -> xarray.Dataset:
        with RunFolder(path, "study B.learning", former="resume") as run:
            bench = Bench(LEARNING.id, run, preset="smoke", seed=0, device="cpu")
            return bench.part(
                "a",
                lambda: trained_at_best_rate(
                    bench,
                    ShortcutSpec(4, 3),
                    data,
                    "zero",
                    calibration=2,
                    networks=2,
                    steps=5,
                    per_decade=2,
                    attrs={"kind": "a"},
                    name="a",
                ),
            )

    monkeypatch.setattr(ensemble, "train_ensemble", counted)
    unbroken, rounds = found(tmp_path / "unbroken"), list(asked)
    assert len(rounds) >= 3
    asked.clear()
    allowed = 1
    with pytest.raises(KilledError):
        found(tmp_path / "killed")
    assert asked == rounds[:1]
    asked.clear()
    allowed = 99
    xarray.testing.assert_identical(found(tmp_path / "killed"), unbroken)
    assert asked == rounds[1:]
    pieces = [name for name in load_run(tmp_path / "killed").names if name != "learning-a"]
    assert len(pieces) == len(rounds)
    assert {load_run(tmp_path / "killed").dataset(name).attrs["part"] for name in pieces} == {"piece"}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_smoke_has_evidence_for_every_criterion(study: Study, smoke_run: Callable[[Study], SmokeRun]) -> None:
    found = smoke_run(study).found
    assert found == smoke_run(study).again
    halves = {B20} if study is LEARNING else set()
    assert set(found) == {*study.claims, *halves}
    for claim, evidence in found.items():
        assert missing(claim, evidence) == NOT_AT_SMOKE.get(claim, set())
        assert study.decide(claim, evidence, "smoke").verdict == "open"


# -- what is decided

SPREAD = numpy.linspace(0.95, 1.05, 20)  # of 20 networks


def fake(architecture: str, depth: int, above: float, rate: float, kind: str = "linear") -> xarray.Dataset:
    """Losses that are 10^above more than 0.3 at the best of three learning rates, which is that of every network."""
    lowest_loss = 0.3 if kind == "linear" else 0.0
    final = lowest_loss + 10**above * SPREAD
    logs = numpy.log10(final - lowest_loss)
    return xarray.Dataset(
        {
            "loss": (("seed", "rate"), numpy.stack([2 * final, final, 3 * final], 1)),
            "final": ("seed", final),
            "log_excess": ("seed", logs),
            "curve": (("seed", "step"), numpy.stack([logs + 1, logs], 1)),
        },
        {"seed": range(1000, 1020), "rate": [rate / 1.5, rate, 1.5 * rate], "step": [1, 1000]},
        {
            "depth": depth,
            "best_rate": rate,
            "on_edge": 0,
            "flat": 0,
            "lowest_loss": lowest_loss,
            "kind": kind,
            "also_reported": 0,
            "data": "mnist",
            "samples": 60000,
            "steps": 1000,
        },
    )


def as_the_paper_says() -> dict[Case, xarray.Dataset]:
    found = {}
    for depth in FIGURE7_DEPTHS:
        for name, above, rate in (
            ("xavier", -1.0, 0.01),
            ("orthogonal", -2.5, 0.1),
            ("1-shortcut", -2.5, 0.1),
            ("2-shortcut", -4.0, 1.0),
            ("3-shortcut", 1.0, 0.1),
        ):
            if name != "3-shortcut" or depth % 3 == 0:
                found[Case("linear", name, depth)] = fake(name, depth, above, rate)
    for depth in (16, 64):
        for name, log in (("xavier", 0.5), ("orthogonal", 0.4), ("2-shortcut", -0.01 * depth)):
            found[Case("relu", name, depth)] = fake(name, depth, log, 0.1, "relu")
    return found


def decided(claim: Claim, found: dict[Case, xarray.Dataset], preset: str = "quick") -> Decision:
    """B20 with condition numbers that are alike."""
    evidence = learning.evidence(found, 10)[claim]
    if claim is B20:
        start = {CONDITIONS_APART: [0.01] * 10, CONDITION_FLOOR: 0.0}
        evidence = together([Measured(start, BEFORE_TRAINING, range(1000, 1010))], evidence)
    return LEARNING.decide(claim, evidence, preset)


def verdicts(claim: Claim, found: dict[Case, xarray.Dataset]) -> list[str]:
    return [part.verdict for part in decided(claim, found).parts]


DECIDED = (B10, B11, B12, B13, B20)


@pytest.mark.parametrize("claim", DECIDED, ids=lambda claim: claim.id)
def test_what_the_paper_shows_is_reproduced(claim: Claim) -> None:
    decision = decided(claim, as_the_paper_says())
    assert decision.verdict == "reproduced", decision.reason


def test_what_the_paper_does_not_show_is_not() -> None:
    found = as_the_paper_says()
    found[Case("linear", "1-shortcut", 6)] = fake("1-shortcut", 6, -3.0, 0.1)
    found[Case("linear", "2-shortcut", 96)] = fake("2-shortcut", 96, -2.0, 0.2)
    for depth in (6, 12, 24, 48, 96):
        found[Case("linear", "3-shortcut", depth)] = fake("3-shortcut", depth, -3.7, 0.1)
    found[Case("relu", "2-shortcut", 64)] = fake("2-shortcut", 64, 0.4, 0.1, "relu")
    no, yes = "not reproduced", "reproduced"
    assert verdicts(B10, found) == [no, no, yes]
    # At depth 96 twice the rate of every rival: larger, but not three times as large. Xavier's are compared up to 48.
    assert verdicts(B11, found) == [yes, yes, yes, no, yes, no, yes, no]
    assert verdicts(B12, found) == [no, no, no]
    assert verdicts(B13, found) == [no]  # 10^.3 at four depths and 10^-1.7 at one
    assert verdicts(B20, found) == [yes, no, no]


def test_the_ratio_of_shortcut_depths_is_a_geometric_mean_of_excess_losses() -> None:
    found = as_the_paper_says()
    for depth, above in ((6, -3.0), (12, -3.0), (24, -2.0), (48, -2.0), (96, -5.0)):
        found[Case("linear", "3-shortcut", depth)] = fake("3-shortcut", depth, above, 0.1)
    (measured,) = learning.evidence(found, 10)[B13]
    assert measured.values[learning.EXCESS_RATIO] == pytest.approx([10.0] * 10)  # decades: (1 + 1 + 2 + 2 - 1) / 5
    assert measured.values[learning.SMALLEST_EXCESS_RATIO] == pytest.approx([0.1] * 10)


def test_few_samples_do_not_decide_about_relus() -> None:
    found = as_the_paper_says()
    for case, part in found.items():
        if case.kind == "relu":
            part.attrs.update(samples=1000, steps=300)
    decision = decided(B12, found)
    assert decision.verdict == "open"
    assert [each.subject for each in decision.subjects] == ["whitened MNIST, 1000 samples, 300 steps"]


def test_digits_decide_nothing() -> None:
    found = as_the_paper_says()
    for part in found.values():
        part.attrs["data"] = "digits"
    for claim in (B10, B11, B12, B13):
        assert decided(claim, found).verdict == "open"


def test_networks_without_a_best_rate_say_nothing() -> None:
    found = as_the_paper_says()
    found[Case("linear", "1-shortcut", 96)].attrs["flat"] = 1
    decision = decided(B11, found)
    assert [part.verdict for part in decision.parts].count("inconclusive") == 2
    assert "not a number" in decision.reason


def test_the_best_rate_is_that_of_each_network() -> None:
    """One network would rather have another rate."""
    found = as_the_paper_says()
    found[Case("linear", "orthogonal", 96)]["loss"][3, 2] = 0.0
    (measured,) = learning.evidence(found, 10)[B11]
    ratios = measured.values[learning.RATE_RATIO["orthogonal", 96]]
    assert ratios == pytest.approx([10.0] * 3 + [10 / 1.5] + [10.0] * 16)
    assert measured.values[learning.RATES_ON_EDGE] == 1
    assert own_rates(found[Case("linear", "orthogonal", 96)])[3] == pytest.approx(0.15)


def test_rates_that_are_far_apart_do_not_decide() -> None:
    found = as_the_paper_says()
    for part in found.values():
        part["rate"] = part["rate"].values * numpy.array([0.3, 1, 1 / 0.3])
    assert set(verdicts(B11, found)) == {"inconclusive"}


def test_losses_are_those_of_networks_that_did_not_choose_the_rate() -> None:
    (measured,) = learning.evidence(as_the_paper_says(), 10)[B10]
    assert list(measured.seeds) == list(range(1000, 1010))
    (measured,) = learning.evidence(as_the_paper_says(), 10)[B11]
    assert measured.count == 20


@pytest.mark.parametrize("claim", DECIDED, ids=lambda claim: claim.id)
def test_a_rate_on_the_edge_leaves_it_open(claim: Claim) -> None:
    found = as_the_paper_says()
    compared = {B12: Case("relu", "orthogonal", 16), B20: Case("linear", "1-shortcut", 96)}
    found[compared.get(claim, Case("linear", "2-shortcut", 96))].attrs["on_edge"] = 1
    decision = decided(claim, found)
    assert decision.verdict == "inconclusive"
    assert "on the edge" in decision.reason


def test_edges_of_other_networks_do_not_matter() -> None:
    found = as_the_paper_says()
    found[Case("linear", "xavier", 96)].attrs["on_edge"] = 1
    assert [decided(claim, found).verdict for claim in (B12, B13, B20)] == ["reproduced"] * 3


def test_losses_are_alike_within_what_seeds_do() -> None:
    """1-shortcut networks are .4 off at depth 4, where halves of orthogonal ones are farther apart than that."""
    found = as_the_paper_says()
    found[Case("linear", "1-shortcut", 4)] = fake("1-shortcut", 4, -2.1, 0.1)
    assert verdicts(B20, found) == ["reproduced", "not reproduced", "not reproduced"]
    wide = found[Case("linear", "orthogonal", 4)]
    for key in ("log_excess", "curve"):
        wide[key][0] += 30.0
    (measured,) = learning.evidence(found, 10)[B20]
    assert measured.values[LOSS_FLOOR[4]] == pytest.approx(3.0, abs=0.1)  # 30 in the mean of one half of 20


def test_the_distance_of_two_kinds_and_its_floor() -> None:
    one, other = numpy.array([1.0, 2.0, 3.0]), numpy.array([4.0, 5.0, 6.0])
    found = apart(one, other)
    assert isinstance(found, Difference)
    assert found.value == 3
    assert found.interval() == pytest.approx(apart(other, one).interval())
    assert numpy.isnan(apart(one, numpy.array([1.0, numpy.inf])))
    assert between_seeds(numpy.array([[0.0, 1.0], [2.0, 1.0]])) == 2
    assert numpy.isnan(between_seeds(numpy.array([[0.0]])))
    assert farthest(numpy.array([[0.0, 5.0, 1.0]]), numpy.array([[1.0, 2.0, 1.0]])) == 1


def test_bad_settings_are_named() -> None:
    for settings, change, words in (
        (LearningSettings(), {"depths": (5,)}, "depths: expected each at least 1 and an even number, got 5"),
        (
            LearningSettings(),
            {"other_depths": (16,)},
            "other_depths: expected each at least 1 and a multiple of 6, got 16",
        ),
        (LearningSettings(), {"steps": 0}, "steps: expected at least 1, got 0"),
        (LearningSettings(), {"relu_samples": -3}, "relu_samples: expected at least 1, got -3"),
        (
            LearningSettings(),
            {"depths": (), "relu_depths": (), "other_depths": ()},
            "depths, relu_depths, other_depths: expected a depth in one of them, got none",
        ),
        (NormSettings(), {"depths": (6,)}, "depths: expected at least two values, got 6"),
        (NormSettings(), {"depths": (6, 7)}, "depths: expected each at least 2 and an even number, got 6, 7"),
        (NormSettings(), {"trained": (8,)}, "trained: expected at least two values, got 8"),
        (NormSettings(), {"rate": 0.0}, "rate: expected above 0, got 0.0"),
        (NormSettings(), {"residual_epochs": 2}, "residual_epochs: expected at least 5, got 2"),
        (ShortcutSettings(), {"connected": (16,)}, "connected: expected each at least 1 and a multiple of 12, got 16"),
        (ShortcutSettings(), {"residual_epochs": 1}, "residual_epochs: expected at least 5, got 1"),
        (ShortcutSettings(), {"residual": (56,)}, "such as"),
    ):
        with pytest.raises(InputError, match=words):
            dataclasses.replace(settings, **change)
