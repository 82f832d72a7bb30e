"""The studies of paper B's theorems and of their norms: what they find, what it decides, and what would not pass."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.data import Dataset, Images
from skipscope.errors import InputError
from skipscope.papers.b import subjects
from skipscope.papers.b.learning_rates import ON_EDGE
from skipscope.papers.b.measurements import depth
from skipscope.papers.b.measurements.zero_weights import at_best_rates
from skipscope.papers.b.studies import norms, theorem1, theorem2
from skipscope.papers.b.studies.norms import STUDY as NORMS
from skipscope.papers.b.studies.norms import NormSettings
from skipscope.papers.b.studies.shortcuts import ShortcutSettings
from skipscope.papers.b.studies.theorem1 import B15, B16, B17, B18, Theorem1Settings
from skipscope.papers.b.studies.theorem1 import STUDY as THEOREM1
from skipscope.papers.b.studies.theorem2 import B1, B2, B3, B4, B5, B21, B23, Theorem2Settings
from skipscope.papers.b.studies.theorem2 import STUDY as THEOREM2
from skipscope.papers.b.subjects import LOWEST_LOSS, residual_training
from skipscope.papers.kit import Bench, Claim, Evidence, Study
from skipscope.runs import RunFolder, load_run
from tests.data.real import require
from tests.papers.b.evidence import about, missing, values
from tests.papers.conftest import SmokeRun

SMALL1 = Theorem1Settings(2, points=5, labelled=10, steps=(30, 1000), distances=(0.1, 0.25, 0.5), units=100)
SMALL2 = Theorem2Settings(
    "digits",
    (3,),
    sets=4,
    units=(1, 2, 4, 8, 16),
    networks=3,  # training them is half of the study; where a claim asks for eight, `about` says that there are
    relu_networks=3,
    relu_depths=(2, 4, 8),
    per_decade=2,
    steps=150,
)


def found_by(study: Study, settings: Any, path: Path) -> Evidence:
    with RunFolder(path, f"study {study.id}") as run:
        return study.run(Bench(study.id, run, preset="quick", seed=0, device="cpu"), settings)


@pytest.fixture(scope="module", name="first")
def _first(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return found_by(THEOREM1, SMALL1, tmp_path_factory.mktemp("b") / "theorem1")


@pytest.fixture(scope="module", name="second_path")
def _second_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b") / "theorem2"


@pytest.fixture(scope="module", name="second")
def _second(second_path: Path) -> Evidence:
    return found_by(THEOREM2, SMALL2, second_path)


@pytest.mark.parametrize("study", [THEOREM1, THEOREM2], ids=lambda study: study.name)
def test_smoke_has_evidence_for_every_criterion(study: Study, smoke_run: Callable[[Study], SmokeRun]) -> None:
    found = smoke_run(study).found
    assert found == smoke_run(study).again
    assert set(found) == set(study.claims)
    by_shortcuts = set(theorem2.ERROR_GAP.values())
    for claim in study.claims:
        assert missing(claim, found[claim]) == {B23: by_shortcuts}.get(claim, set())
        assert study.decide(claim, found[claim], "smoke").verdict == "open"


@pytest.mark.parametrize("claim", [B15, B16, B17, B18], ids=lambda claim: claim.id)
def test_theorem_1_is_reproduced(claim: Claim, first: Evidence) -> None:
    decision = THEOREM1.decide(claim, first[claim], "quick")
    assert decision.verdict == "reproduced", decision.reason


def test_float64_loses_close_points_and_keeps_far_ones(first: Evidence) -> None:
    assert first[B18][theorem1.FLOAT64_ERROR] > 0.1
    assert first[B18][theorem1.WIDE_FLOAT64_ERROR] < 1e-6
    assert first[B16][theorem1.DETOURS] == 5 * 4


@pytest.mark.parametrize("claim", [B1, B3, B4], ids=lambda claim: claim.id)
def test_theorem_2_is_reproduced(claim: Claim, second: Evidence) -> None:
    decision = THEOREM2.decide(claim, second[claim], "quick")
    assert decision.verdict == "reproduced", decision.reason


def test_biases_have_a_form_but_no_finite_condition_number(second: Evidence) -> None:
    decision = THEOREM2.decide(B21, second[B21], "quick")
    assert decision.verdict == "partly reproduced"
    assert [part.verdict for part in decision.parts] == ["not reproduced", "reproduced"]
    assert min(second[B21][theorem2.ZEROS]) >= 3


def test_digits_stand_beside_what_decides_about_deep_shortcuts(second: Evidence) -> None:
    decision = THEOREM2.decide(B23, second[B23], "quick")
    assert [part.verdict for part in decision.parts] == ["reproduced", "open", "open"]
    assert [each.subject for each in decision.subjects] == [theorem2.ZERO_WEIGHTS, "whitened digits"]
    decision = THEOREM2.decide(B23, [second[B23][0], *about(subjects.MNIST, second[B23][1:], 8)], "quick")
    assert [part.verdict for part in decision.parts] == ["reproduced", "reproduced", "open"]
    assert "B.shortcuts" in decision.cost


@pytest.mark.slow
def test_theorem_2_is_reproduced_with_more_units_and_longer_training(tmp_path: Path) -> None:
    found = found_by(THEOREM2, dataclasses.replace(SMALL2, units=(1, 2, 4, 8, 16, 32), steps=400), tmp_path / "run")
    for claim in (B1, B3, B4):
        decision = THEOREM2.decide(claim, found[claim], "quick")
        assert decision.verdict == "reproduced", decision.reason
    assert values(found[B23])[theorem2.LEFT_FROM_PAPERS_START] > 0.999
    assert max(values(found[B23])[theorem2.FINAL_LOSS]) < 1


def test_digits_do_not_decide_the_number_of_mnist(second: Evidence) -> None:
    decision = THEOREM2.decide(B2, second[B2], "quick")
    assert [part.verdict for part in decision.parts] == ["reproduced", "open"]
    assert values(second[B2])[theorem2.SPREAD_OVER_UNITS] <= 1e-12
    assert values(second[B2])[theorem2.CONDITION_ON_DATA] == pytest.approx(1.5919, abs=1e-4)


def test_a_true_relu_does_not_follow_the_formula(second: Evidence) -> None:
    found = values(second[B5])
    assert found[theorem2.RELU_AT_ZERO] == 0
    assert min(found[theorem2.RELU_CONDITION_RATIO]) > 1.5
    decision = THEOREM2.decide(B5, about(subjects.MNIST, second[B5], 10), "quick")
    assert decision.parts[1].verdict == "not reproduced"


def test_conditioning_of_relus_by_depth_is_reduced_in_each_network(second_path: Path, second: Evidence) -> None:
    """Two networks at three depths: ranges over depth, and distances from a formula of 0.3."""
    saved = load_run(second_path)
    relu, by_depth = (saved.dataset(f"theorem2-{name}").load() for name in ("relu", "relu_by_depth"))
    by_depth = by_depth.isel(depth=slice(3), seed=slice(2)).assign_attrs(formula=0.3)
    by_depth["log_condition"][0] = [[0.30, 0.35], [0.32, 0.5], [0.31, 0.4]]
    by_depth["log_condition"][1] = [[0.5, 0.6], [0.8, 0.9], [1.2, 1.0]]
    found = theorem2._with_relus(relu, by_depth)
    assert found.values[theorem2.RELU_RANGE] == pytest.approx([0.02, 0.15])
    assert found.values[theorem2.ORTHOGONAL_RANGE] == pytest.approx([0.7, 0.4])
    assert found.values[theorem2.OFF_FORMULA] == pytest.approx([0.02, 0.2])
    assert found.seeds == [1000, 1001]


def test_all_deep_shortcuts_stay_at_zero_from_the_papers_start(second: Evidence) -> None:
    assert values(second[B23])[theorem2.LEFT_FROM_PAPERS_START] > 0.999
    assert max(values(second[B23])[theorem2.FINAL_LOSS]) < 1  # but not from 0.1 Xavier


def test_the_best_rate_of_each_shortcut_depth_is_inside_of_the_grid(second: Evidence) -> None:
    (trained,) = about(subjects.MNIST, second[B23][1:], 8)
    assert trained.values[ON_EDGE] == 0
    assert len(trained.values[theorem2.BEST_RATES]) == 3
    on_edge = dataclasses.replace(trained, values={**trained.values, ON_EDGE: 1})
    part = THEOREM2.decide(B23, [on_edge], "quick").parts[1]
    assert part.verdict == "inconclusive"
    assert "on the edge" in part.reason


def test_rates_that_diverge_close_the_grid() -> None:
    inf = numpy.inf
    losses = xarray.DataArray(
        [[[3.0, 2, 1], [3, 2, 1]], [[3, 1, inf], [3, 1, 0.5]], [[1, 2, 3], [1, 2, 3]], [[inf] * 3] * 2],
        dims=("n", "network", "rate"),
        coords={"n": [3, 4, 5, 6], "network": [0, 1], "rate": [0.1, 1.0, 10.0]},
    )
    judged = (losses + 0.5).assign_coords(network=[1000, 1001])
    found = at_best_rates(xarray.concat([losses, judged], "network"))
    assert found["on_edge"].values.tolist() == [True, False, True, True]
    assert found["rate"].values.tolist() == [10, 1, 0.1, 0.1]
    assert found["loss"].sel(n=4).values.tolist() == [1.5, 1.5]  # of the networks that did not choose the rate
    assert found["network"].values.tolist() == [1000, 1001]


def test_wrong_forms_are_not_reproduced(second: Evidence, second_path: Path) -> None:
    saved = load_run(second_path)
    parts = {name.removeprefix("theorem2-"): saved.dataset(name) for name in saved.names}
    assert theorem2.evidence(**parts)[B1] == second[B1]
    parts["forms"]["hessian_error"][:] = 1e-9
    jump_and_rise = [[1.0, 60, 60, 60, 60], [1.0, 1.01, 1.02, 1.03, 1.04]]  # n = 1, n = 2
    parts["conditions"]["condition"][:] = numpy.array(jump_and_rise)
    parts["stationarity"]["hessian"][-1] = 1e-20
    parts["biases"]["zeros"][0] += 1
    parts["relu_by_depth"]["log_condition"][0, 0] += 1
    parts["escape"]["loss"].loc[{"n": 5}] /= 100
    found = theorem2.evidence(**parts)
    assert THEOREM2.decide(B2, found[B2], "quick").parts[0].verdict == "not reproduced"
    for claim in (B1, B3, B4, B21):
        assert THEOREM2.decide(claim, found[claim], "quick").verdict == "not reproduced", claim.id
    for claim, place, networks in ((B23, 1, 8), (B5, 0, 10)):
        measured = about(subjects.MNIST, found[claim][-1:], networks)
        assert THEOREM2.decide(claim, measured, "quick").parts[place].verdict == "not reproduced", claim.id


def test_norms_that_do_not_shrink_are_not_reproduced(smoke_run: Callable[[Study], SmokeRun]) -> None:
    saved = smoke_run(THEOREM1).datasets()
    parts = [saved[f"theorem1-{name}"] for name in ("lemma1", "paths", "norms", "errors")]
    parts[2]["largest"][:] = 1.0
    parts[2]["units"][:] = [10, 1000]
    assert THEOREM1.decide(B17, theorem1.evidence(*parts)[B17], "quick").verdict == "not reproduced"


def test_bad_settings_are_named() -> None:
    for settings, change, words in (
        (SMALL1, {"units": 1}, "units: expected at least 2, got 1"),
        (SMALL1, {"draws": 0}, "draws: expected at least 1, got 0"),
        (SMALL1, {"steps": (30, 0)}, "steps: expected each at least 1, got 30, 0"),
        (SMALL1, {"distances": (1.5,)}, "distances: expected each above 0 and at most 1, got 1.5"),
        (SMALL2, {"units": (4,)}, "units: expected at least two values, got 4"),
        (SMALL2, {"sizes": (3, 0)}, "sizes: expected each at least 1, got 3, 0"),
        (SMALL2, {"steps": 0}, "steps: expected at least 1, got 0"),
        (NormSettings(), {"samples": 0}, "samples: expected at least 1, got 0"),
        (NormSettings(), {"rate": -1.0}, "rate: expected above 0, got -1.0"),
        (ShortcutSettings(), {"networks": 0}, "networks: expected at least 1, got 0"),
        (ShortcutSettings(), {"residual_epochs": 4}, "residual_epochs: expected at least 5, got 4"),
    ):
        with pytest.raises(InputError, match=words):
            dataclasses.replace(settings, **change)


# -- norms


def followed(depth: int, losses: Sequence[float], norms_at: Sequence[float]) -> xarray.Dataset:
    """Two seeds; the second's norms are twice those of the first."""
    curves = numpy.array([norms_at, [2 * norm for norm in norms_at]])
    return xarray.Dataset(
        {"loss": (("seed", "step"), [losses, losses]), "norm": (("seed", "step"), curves)}, attrs={"depth": depth}
    )


def test_norms_are_compared_at_equal_loss() -> None:
    """The worst final loss is 1. The second depth has it half way between two steps, at a norm of 4 / 2."""
    parts = [followed(4, [9, 4, 1], [0.1, 2, 4]), followed(16, [9, 1.5, 0.5], [0.1, 1.5, 2.5])]
    assert norms.slopes_at_equal_loss(parts) == pytest.approx([-0.5, -0.5])
    at_start = followed(16, [1, 1, 0.5], [2.0, 3, 4])
    assert norms.slopes_at_equal_loss([parts[0], at_start]) == pytest.approx([-0.5, -0.5])
    lost = followed(16, [9, numpy.inf, numpy.inf], [0.1, numpy.nan, numpy.nan])
    assert numpy.isnan(norms.slopes_at_equal_loss([parts[0], lost])).all()


def test_norms_fall_with_depth_during_a_share_of_the_training() -> None:
    parts = [followed(depth, [1] * 5, row) for depth, row in ((4, [1, 5, 5, 5, 5]), (8, [1, 4, 6, 4, 5]))]
    assert norms.shares_falling(parts) == [0.5, 0.5]
    parts.append(followed(16, [1] * 5, [1, 4, 3, 3, 3]))
    assert norms.shares_falling(parts) == [0.25, 0.25]


def test_states_from_small_weights_neither_stand_still_nor_explode(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "study B.norms") as run:
        bench = Bench(NORMS.id, run, preset="quick", seed=0, device="cpu")
        states = depth.states(bench, bench.data("digits"), bench.seeds(3), 32)
    slopes = abs(norms._growth(states, "from zero"))
    assert (slopes > 0).all()
    assert (slopes <= 1e-3).all()
    assert (norms._growth(states, "without BatchNorm") > 0.1).all()


def noise() -> Dataset:
    """Images of CIFAR-10's size."""
    generator = torch.Generator("cpu").manual_seed(0)
    pixels = torch.randint(0, 256, (24, 3, 32, 32), dtype=torch.uint8, generator=generator, device="cpu")
    images = Images(pixels, torch.arange(24, device="cpu") % 10)
    return Dataset("noise", tuple(map(str, range(10))), images, images.select(torch.arange(10, device="cpu")))


def test_a_kill_before_the_part_is_written_loses_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = dataclasses.replace(residual_training(5, (0.4, 0.605)), batch=8, precision="float32")
    trained: list[int] = []

    def measured(folder: str, former: Any = "refuse") -> xarray.Dataset:
        with RunFolder(tmp_path / folder, "study B.norms", former=former) as run:
            bench = Bench(
                NORMS.id,
                run,
                preset="full",
                seed=0,
                device="cpu",
                announce=lambda what, done, total: trained.append(done),
            )
            return depth.residual_norms(bench, noise(), training, [8], 1)[0]

    expected = measured("whole")
    assert trained.pop() == 15
    with monkeypatch.context() as patch:
        patch.setattr(depth, "branch_outputs", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            measured("killed")
    assert list((tmp_path / "killed").rglob("*.training.*"))
    trained.clear()
    xarray.testing.assert_identical(measured("killed", "resume"), expected)
    assert not trained
    assert not list((tmp_path / "killed").rglob("*.training.*"))


def test_the_known_numbers_of_mnist(tmp_path: Path) -> None:
    require("mnist")
    settings = dataclasses.replace(
        SMALL2, data=f"mnist:{os.environ['SKIPSCOPE_DATA']}", networks=1, relu_networks=1, steps=1
    )
    measured = found_by(THEOREM2, settings, tmp_path / "run")[B2]
    assert THEOREM2.decide(B2, measured, "quick").verdict == "reproduced"
    found = values(measured)
    assert found[theorem2.CONDITION_ON_DATA] == pytest.approx(1.4907, abs=1e-4)
    assert found[theorem2.PERCENTILE_CONDITION] == pytest.approx(1.4666, abs=1e-4)
    assert found[theorem2.OVER_ALL_SIGNS] == pytest.approx([1.408, 1.634], abs=1e-3)
    assert found[theorem2.LOSS_AT_IDENTITY] == pytest.approx(5.0159, abs=1e-4)
    assert found[LOWEST_LOSS] == pytest.approx(0.3371410, abs=1e-7)
