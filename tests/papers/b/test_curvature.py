"""Hessians of n-shortcut networks before training and on its way: what the studies find, and what would not pass."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.errors import InputError
from skipscope.papers.b.learning_rates import ON_EDGE, lowest
from skipscope.papers.b.measurements.hessians_in_training import (
    at_excesses,
    chosen,
    even_steps,
    excess_steps,
    falling_steps,
    steps_to,
)
from skipscope.papers.b.networks import Moments, ShortcutSpec, ensemble, initial_weights, train_ensemble
from skipscope.papers.b.networks.hessian import LOG_CEILING, log_condition, spectrum_numbers
from skipscope.papers.b.networks.network import outputs
from skipscope.papers.b.studies import dynamics, initial
from skipscope.papers.b.studies.dynamics import B7, B8, B9, interpolated, steepest_drop
from skipscope.papers.b.studies.dynamics import STUDY as DYNAMICS
from skipscope.papers.b.studies.initial import B6, B20
from skipscope.papers.b.studies.initial import STUDY as INITIAL
from skipscope.papers.b.subjects import ARCHITECTURES, MNIST, WITH_HESSIANS, whitened_data
from skipscope.papers.kit import Bench, Claim, Evidence, Study
from skipscope.runs import RunFolder, load_run
from tests.data.real import require
from tests.papers.b.evidence import about, missing, values

SMOKE = {study.id: dataclasses.replace(study.presets["smoke"], data="digits") for study in (INITIAL, DYNAMICS)}


@dataclasses.dataclass(frozen=True)
class Run:
    found: Evidence
    path: Path
    trained: tuple[int, ...] = ()  # numbers of networks that were trained together, one after another

    def parts(self, *names: str) -> list[xarray.Dataset]:
        saved = load_run(self.path)
        return [saved.dataset(name).load() for name in names]


def bench_of(study: Study, run: RunFolder) -> Bench:
    return Bench(study.id, run, preset="smoke", seed=0, device="cpu")


def found_by(study: Study, path: Path) -> Run:
    with RunFolder(path, f"study {study.id}", former="resume") as run:
        return Run(study.run(bench_of(study, run), SMOKE[study.id]), path)


@pytest.fixture(scope="module", name="start")
def _start(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return found_by(INITIAL, tmp_path_factory.mktemp("curvature") / "initial")


@pytest.fixture(scope="module", name="way")
def _way(tmp_path_factory: pytest.TempPathFactory) -> Run:
    trained = []

    def counted(spec: ShortcutSpec, weights: torch.Tensor, *others: Any, **options: Any) -> Any:
        trained.append(len(weights))
        return train_ensemble(spec, weights, *others, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble, "train_ensemble", counted)
        run = found_by(DYNAMICS, tmp_path_factory.mktemp("curvature") / "dynamics")
    return dataclasses.replace(run, trained=tuple(trained))


def test_smoke_has_evidence_for_every_criterion(start: Run, way: Run) -> None:
    of_losses = (initial.LOSSES_APART, initial.LOSS_FLOOR, initial.CURVES_APART, initial.CURVE_FLOOR)
    by_learning = {ON_EDGE, *(quantity for by_depth in of_losses for quantity in by_depth.values())}
    for study, run in ((INITIAL, start), (DYNAMICS, way)):
        assert set(run.found) == set(study.claims)
        for claim, evidence in run.found.items():
            not_reached = {dynamics.GAP_AT_END, dynamics.END_FLOOR}  # within 200 steps
            assert missing(claim, evidence) == {B20: by_learning, B7: not_reached}.get(claim, set())
            assert study.decide(claim, evidence, "smoke").verdict == "open"


def test_a_resumed_run_says_the_same(way: Run) -> None:
    assert found_by(DYNAMICS, way.path).found == way.found


def test_the_data_are_white(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "test") as run:
        found = whitened_data(bench_of(INITIAL, run), "digits")
    torch.testing.assert_close(found.moments.sxx, torch.eye(10, dtype=torch.float64, device="cpu"))
    assert found.name == "digits"
    assert found.moments.syy == pytest.approx(1)


@pytest.mark.parametrize("name", ["xavier", "1-shortcut", "2-shortcut"])
def test_the_condition_number_is_that_of_the_differentiated_loss(name: str) -> None:
    generator = torch.Generator("cpu").manual_seed(1)
    x, y = torch.randn(2, 30, 4, dtype=torch.float64, generator=generator, device="cpu")
    n, init = ARCHITECTURES[name]
    spec = ShortcutSpec(4, 4, n)
    weights = initial_weights(spec, init, 3, device="cpu")

    def loss(flat: torch.Tensor) -> torch.Tensor:
        return (outputs(spec, flat.view(4, 4, 4), x) - y).square().sum() / 60

    values = torch.linalg.eigvalsh(torch.func.hessian(loss)(weights.flatten()))
    moments = Moments(x.T @ x / 30, y.T @ x / 30, float(y.square().sum() / 30))
    found = spectrum_numbers(spec, weights, moments)
    expected = values.abs().max() / values.abs().quantile(0.1)
    assert 10 ** float(log_condition(found["largest"], found["tenth"])) == pytest.approx(float(expected), rel=1e-9)
    assert found["index"] == pytest.approx(float((values < 0).double().mean()))
    assert found["loss"] == pytest.approx(float(loss(weights.flatten())))
    assert found["gradient"] == pytest.approx(float(torch.func.grad(loss)(weights.flatten()).norm()))


def test_rounding_noise_is_masked() -> None:
    below, above = 10.0 ** (1 - LOG_CEILING), 0.9 * 10.0**-LOG_CEILING
    numpy.testing.assert_allclose(
        log_condition([1.0, 1.0, 1.0, 2.0], [below, above, 0.0, 0.2]), [LOG_CEILING - 1, *[numpy.nan] * 2, 1]
    )


def test_shortcuts_of_depth_two_are_as_conditioned_at_every_depth(start: Run) -> None:
    found = values(start.found[B6])
    assert max(found[initial.RANGE["2-shortcut"]]) < 0.01
    assert found[initial.MEAN_BY_DEPTH["2-shortcut"]][0] < found[initial.MEAN_BY_DEPTH["orthogonal"]][0]
    assert min(found[initial.XAVIER_GAP]) > 1


def test_what_does_not_grow_is_not_reproduced(start: Run) -> None:
    (first,) = start.parts("initial")
    for name, logs in (("orthogonal", [1.0, 1.3, 1.7]), ("xavier", [3.0, 5.0, 8.0])):
        first["log_condition"].loc[{"architecture": name}] = numpy.repeat(numpy.array(logs)[:, None], 2, 1)

    def verdict() -> str:
        return INITIAL.decide(B6, about(MNIST, initial.evidence(first)[B6], 10), "quick").verdict

    assert verdict() == "reproduced"
    first["log_condition"].loc[{"architecture": "xavier", "depth": 16}] = 1.0
    first["log_condition"].loc[{"architecture": "2-shortcut", "depth": 16}] = 1.0
    assert verdict() == "not reproduced"
    assert INITIAL.decide(B6, initial.evidence(first)[B6], "quick").verdict == "open"  # digits, two networks


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_the_start_alone_does_not_say_how_networks_train(start: Run, apart: float) -> None:
    (first,) = start.parts("initial")
    first["log_condition"].loc[{"architecture": "1-shortcut"}] = (
        first["log_condition"].sel(architecture="orthogonal") + apart
    )
    decision = INITIAL.decide(B20, about(initial.BEFORE_TRAINING, initial.evidence(first)[B20], 10), "quick")
    start_alone = "not reproduced" if apart else "reproduced"
    assert [part.verdict for part in decision.parts] == [start_alone, "open", "open"]


def test_steps_between_depths_leave_masked_runs_out(start: Run) -> None:
    (first,) = start.parts("initial")
    first["log_condition"].loc[{"architecture": "xavier"}] = [[3.0, 3.0], [5.0, numpy.nan], [9.0, 6.0]]
    found = values(initial.evidence(first)[B6])
    assert found[initial.SMALLEST_STEP["xavier"]][0] == 2  # depths 4, 8 and 16: steps of 2 and 4
    assert numpy.isnan(found[initial.SMALLEST_STEP["xavier"]][1])  # none is left


def test_the_best_rate_is_that_of_the_lowest_mean() -> None:
    assert lowest(numpy.array([[1.0, 0.1, numpy.inf], [1.0, 0.3, 0.01]])) == 1
    assert lowest(numpy.full((2, 3), numpy.inf)) == 0


def test_interpolation_follows_a_known_curve() -> None:
    losses = numpy.array([5.0, 3.0, 2.0, 0.5])
    levels = numpy.array([6.0, 5.0, 4.0, 2.5, 1.0, 0.5, 0.4])
    found = interpolated(losses, 3 * losses + 1, levels)
    numpy.testing.assert_allclose(found[1:-1], 3 * levels[1:-1] + 1)
    assert numpy.isnan(found[[0, -1]]).all()  # where the run has not been


def test_steps_are_chosen_by_the_loss_and_fall() -> None:
    losses = 1 + 4 * 0.9 ** numpy.arange(101.0)
    losses[50:53] += 0.5  # a bump does not count
    steps = falling_steps(losses, 1.0, 11)
    assert (len(steps), steps[0], steps[-1]) == (11, 0, 100)
    assert steps == pytest.approx([0, 10, 20, 30, 40, 53, 60, 70, 80, 90, 100], abs=1)  # rounding decides the step
    assert (numpy.diff(losses[steps]) < 0).all()
    assert falling_steps(numpy.array([5.0, 1.5, 1.2]), 1.0, 6) == [0, 1, 2]


def test_the_steepest_drop_is_found_where_steps_are_uneven() -> None:
    steps = numpy.array([[0.0, 10, 12, 20], [0, 2, 4, numpy.nan]])
    index = numpy.array([[0.5, 0.45, 0.43, 0.42], [0.5, 0.5, 0.4, numpy.nan]])
    assert steepest_drop(steps, index).tolist() == [11, 3]


def test_the_time_to_a_share_of_the_first_excess() -> None:
    losses = 1 + numpy.array([[4.0, 3.7, 3.6, 2.0, 0.4, 0.3], [4.0, 3.0, 2.0, 2.0, 2.0, 2.0]])
    numpy.testing.assert_array_equal(steps_to(losses, 1.0, 0.9), [2, 1])
    numpy.testing.assert_array_equal(steps_to(losses, 1.0, 0.1), [4, numpy.nan])


def test_even_steps_end_after_convergence_or_with_the_run() -> None:
    losses = 1 + 4 * 0.5 ** numpy.arange(101.0)  # 1 % of the first excess is left after 7 steps
    assert even_steps(losses, 1.0, 4) == [0, 3, 6, 9]
    assert even_steps(losses[:6], 1.0, 3) == [0, 2, 5]


def test_judged_networks_are_trained_twice(way: Run) -> None:
    """After the rounds of calibration, of several rates each."""
    runs = SMOKE["B.dynamics"].runs
    assert way.trained[-2 * len(WITH_HESSIANS) :] == (runs, runs) * len(WITH_HESSIANS)
    assert len(way.trained) >= 3 * len(WITH_HESSIANS)
    followed, rates = way.parts("dynamics-2-shortcut", "dynamics-rates")
    assert followed["seed"].values.tolist() == [1000, 1001]
    assert followed.attrs["rate"] == float(rates["rate"].sel(architecture="2-shortcut"))


def test_both_choices_of_steps_are_in_one_way(way: Run) -> None:
    followed, other, epochs = way.parts("dynamics-2-shortcut", "dynamics-orthogonal", "dynamics-epochs")
    assert (other["even"].fillna(0) == 0).all()
    assert "every_loss" not in other
    for seed in followed["seed"].values:
        one, its = followed.sel(seed=seed), epochs.sel(seed=seed).dropna("epoch", subset=["step"])
        steps = its["step"].values.astype(int)
        assert steps.tolist() == even_steps(
            one["every_loss"].values, followed.attrs["lowest_loss"], SMOKE["B.dynamics"].epochs
        )
        # The run whose Hessians were taken is the one whose losses and gradients are known at every step.
        numpy.testing.assert_allclose(its["loss"], one["every_loss"].values[steps], rtol=1e-9)
        numpy.testing.assert_allclose(its["gradient"], one["gradient_norm"].values[steps], rtol=1e-6)
        falling = chosen(one, "falling")
        assert (numpy.diff(falling["loss"].values) < 0).all()


def test_the_grid_spans_the_losses_of_all_runs(way: Run) -> None:
    (data,) = way.parts("dynamics")
    assert (numpy.diff(data["level"].values) < 0).all()
    for name in ("orthogonal", "2-shortcut"):
        assert numpy.isfinite(data["index"].sel(architecture=name)).all()
    start = data.sel(architecture="2-shortcut").isel(level=0)
    assert start["index"].values == pytest.approx(0.5, abs=0.02)
    ratio = data["log_largest"] - data["log_tenth"]
    numpy.testing.assert_allclose(ratio, data["log_condition"], atol=1e-12)


def passing(by_loss: xarray.Dataset) -> xarray.Dataset:
    """All but Xavier's runs pass all losses; these begin below the first two."""
    by_loss["passed"][:] = 1.0
    by_loss["passed"].loc[{"architecture": "xavier", "excess": [3.0, 1.0]}] = 0.0
    return by_loss


def decided(claim: Claim, by_loss: xarray.Dataset, epochs: xarray.Dataset) -> list[str]:
    """As if there were enough runs, on MNIST."""
    by_loss, epochs = by_loss.assign_attrs(snapshots=100), epochs.assign_attrs(even=100)
    measured = about(MNIST, [dynamics.evidence(by_loss, epochs)[claim]], 20)
    return [part.verdict for part in DYNAMICS.decide(claim, measured, "quick").parts]


def test_worse_conditioned_networks_are_not_reproduced(way: Run) -> None:
    by_loss, epochs = way.parts("dynamics", "dynamics-epochs")
    passing(by_loss)
    for key, low in (("at_excess", 1.0), ("index", 0.4)):
        by_loss[key][:] = low + 0.1
        by_loss[key].loc[{"architecture": "2-shortcut"}] = low
    epochs["drop"][:] = epochs["peak"] + 1
    found = dynamics.evidence(by_loss, epochs)
    assert found[B9].values[dynamics.DROP_FROM_PEAK_IN_FALL] == (1 / epochs["fall"]).values.tolist()
    assert found[B7].values[dynamics.NOT_COMPARED] == ["xavier at 3", "xavier at 1"]
    assert decided(B7, by_loss, epochs) == ["reproduced"] * 3
    assert [decided(claim, by_loss, epochs) for claim in (B8, B9)] == [["reproduced"]] * 2
    for key in ("at_excess", "index"):
        by_loss[key].loc[{"architecture": "2-shortcut"}] = 9.0
    epochs["drop"][:] = epochs["peak"] + epochs["converged"]
    assert decided(B7, by_loss, epochs) == ["not reproduced"] * 3
    assert [decided(claim, by_loss, epochs) for claim in (B8, B9)] == [["not reproduced"]] * 2


def test_runs_are_compared_at_the_losses_that_both_pass(way: Run) -> None:
    """2-shortcut networks are 1 worse at the largest loss and .2 better elsewhere than orthogonal ones."""
    by_loss, epochs = way.parts("dynamics", "dynamics-epochs")
    passing(by_loss)
    by_loss["at_excess"].loc[{"architecture": "2-shortcut"}] = 1.0
    by_loss["at_excess"].loc[{"architecture": "orthogonal"}] = 1.2
    by_loss["at_excess"].loc[{"architecture": "orthogonal", "excess": 3.0}] = 0.0
    by_loss["at_excess"].loc[{"architecture": "xavier"}] = 3.0
    found = dynamics.evidence(by_loss, epochs)[B7].values
    assert found[dynamics.GAP] == found[dynamics.GAP_AT_LARGE_LOSSES] == [1.0, 1.0]
    by_loss["passed"].loc[{"architecture": "orthogonal", "excess": 3.0, "seed": 1001}] = 0.0  # one run does not pass it
    found = dynamics.evidence(by_loss, epochs)[B7].values
    assert found[dynamics.GAP] == pytest.approx([-0.2, -0.2])
    assert found[dynamics.GAP_TO["xavier"]] == [-2.0, -2.0]
    assert "orthogonal at 3" in found[dynamics.NOT_COMPARED]
    by_loss["passed"].loc[{"excess": 0.001}] = 0.0
    assert decided(B7, by_loss, epochs) == ["reproduced", "reproduced", "inconclusive"]


def test_the_end_is_compared_with_what_seeds_do(way: Run) -> None:
    by_loss, epochs = way.parts("dynamics", "dynamics-epochs")
    passing(by_loss)
    by_loss["at_excess"].loc[{"architecture": "2-shortcut"}] = 4.0
    by_loss["at_excess"].loc[{"architecture": "orthogonal", "excess": 0.001}] = [3.0, 5.0]
    found = dynamics.evidence(by_loss, epochs)[B7].values
    assert found[dynamics.GAP_AT_END] == [1.0, 1.0]
    assert found[dynamics.END_FLOOR] == 2.0
    assert decided(B7, by_loss, epochs)[2] == "reproduced"  # 1 apart, where seeds alone are 2 apart


def test_few_hessians_do_not_decide_about_the_index(way: Run) -> None:
    found = dynamics.evidence(*way.parts("dynamics", "dynamics-epochs"))
    assert [found[claim].unmet for claim in (B7, B8, B9)] == [
        "",
        "5 of the 100 Hessians on the way that it takes",
        "6 of the 100 Hessians on the way that it takes",
    ]


def test_rates_on_an_edge_decide_nothing(way: Run) -> None:
    by_loss, epochs = way.parts("dynamics", "dynamics-epochs")
    by_loss["on_edge"][0] = 1
    assert decided(B7, passing(by_loss), epochs) == ["inconclusive"] * 3


def test_values_at_given_losses_are_interpolated_in_the_logarithm() -> None:
    one = xarray.Dataset({"loss": ("snapshot", [6.0, 2.0, 1.01, 0.5 + 1e-4])}, attrs={"lowest_loss": 0.5})
    found, passed = at_excesses(one, numpy.array([1.0, 2.0, 3.0, 4.0]))
    share = numpy.log10(3 / 1.5) / numpy.log10(5.5 / 1.5)
    assert found[0] == pytest.approx(2 - share)
    assert passed.tolist() == [True] * 5
    far = (numpy.log10([0.1, 0.01, 0.001]) + 4) / (numpy.log10(0.51) + 4)
    numpy.testing.assert_allclose(found[2:], 4 - far, rtol=1e-9)
    started_below = one.isel(snapshot=slice(1, 3))
    found, passed = at_excesses(started_below, numpy.array([2.0, 3.0]))
    assert passed.tolist() == [False, True, False, False, False]
    assert numpy.isnan(found[[0, 2, 3, 4]]).all()


def test_a_loss_that_is_nearly_met_needs_one_hessian() -> None:
    """3 is met to 2 %, 1 is jumped over, 0.1 is not reached."""
    assert excess_steps(numpy.array([6.0, 3.45, 3.44, 0.9, 0.8]), 0.5) == [1, 2, 3]
    assert excess_steps(numpy.array([1.2, 1.1, 0.9]), 0.5) == []


def test_a_masked_run_counts_against_the_network_that_should_be_well_conditioned(way: Run) -> None:
    by_loss, epochs = way.parts("dynamics", "dynamics-epochs")
    passing(by_loss)
    by_loss["at_excess"][:] = 2.0
    by_loss["at_excess"].loc[{"architecture": "2-shortcut"}] = 1.0
    assert decided(B7, by_loss, epochs)[1] == "reproduced"
    by_loss["at_excess"].loc[{"architecture": "2-shortcut", "excess": 0.01, "seed": 1000}] = numpy.nan
    assert dynamics.evidence(by_loss, epochs)[B7].values[dynamics.GAP] == [numpy.inf, -1.0]
    assert decided(B7, by_loss, epochs)[1] == "inconclusive"  # the runs do not agree
    by_loss["at_excess"].loc[{"architecture": "2-shortcut", "excess": 0.01}] = numpy.nan
    assert decided(B7, by_loss, epochs)[1] == "not reproduced"


def test_bad_settings_are_named() -> None:
    for study, change, words in (
        (INITIAL, {"depths": (4, 5)}, "depths: expected each at least 2 and an even number, got 4, 5"),
        (INITIAL, {"runs": 0}, "runs: expected at least 1, got 0"),
        (DYNAMICS, {"depth": 3}, "depth: expected an even number, got 3"),
        (DYNAMICS, {"snapshots": 2}, "snapshots: expected at least 3, got 2"),
        (DYNAMICS, {"steps": 0}, "steps: expected at least 1, got 0"),
        (DYNAMICS, {"shares": (0.1, -1.0)}, "shares: expected each above 0, got 0.1, -1.0"),
    ):
        with pytest.raises(InputError, match=words):
            dataclasses.replace(study.presets["smoke"], **change)


def test_the_known_numbers_of_mnist(tmp_path: Path) -> None:
    require("mnist")
    with RunFolder(tmp_path / "run", "test") as run:
        found = whitened_data(bench_of(INITIAL, run), f"mnist:{os.environ['SKIPSCOPE_DATA']}")
    assert found.moments.lowest_loss == pytest.approx(0.3371410, abs=1e-7)
    spec = ShortcutSpec(8)
    near = spectrum_numbers(spec, initial_weights(spec, "zero", 0, device="cpu"), found.moments)
    assert near["largest"] / near["tenth"] == pytest.approx(1.4666, rel=0.01)
