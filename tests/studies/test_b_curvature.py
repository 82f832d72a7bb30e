"""Hessians of n-shortcut networks before training and on its way: what the studies find, and what would not pass."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.errors import InputError
from skipscope.models import Moments, ShortcutSpec, initial_weights
from skipscope.models.shortcuts import outputs
from skipscope.runs import RunFolder, load_run
from skipscope.studies.b import dynamics, initial
from skipscope.studies.b.claims import CLAIMS
from skipscope.studies.b.dynamics import DYNAMICS, falling_steps, interpolated, steepest_drop
from skipscope.studies.b.initial import INITIAL, curvature, log_condition
from skipscope.studies.b.subjects import ARCHITECTURES, task
from skipscope.studies.bench import Bench
from skipscope.studies.study import Study
from tests.data.real import require

CLAIMED = {claim.id: claim for claim in CLAIMS}
SMOKE = {study.id: dataclasses.replace(study.presets["smoke"], data="digits") for study in (INITIAL, DYNAMICS)}

Found = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Run:
    found: Found
    path: Path

    def parts(self, *names: str) -> list[xarray.Dataset]:
        saved = load_run(self.path)
        return [saved.dataset(name).load() for name in names]


def bench_of(study: Study, run: RunFolder) -> Bench:
    return Bench(study.name, run, preset="smoke", seed=0, device="cpu")


def found_by(study: Study, path: Path) -> Run:
    with RunFolder(path, f"study {study.id}", former="resume") as run:
        return Run(study.run(bench_of(study, run), SMOKE[study.id]), path)


@pytest.fixture(scope="module", name="start")
def _start(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return found_by(INITIAL, tmp_path_factory.mktemp("curvature") / "initial")


@pytest.fixture(scope="module", name="way")
def _way(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return found_by(DYNAMICS, tmp_path_factory.mktemp("curvature") / "dynamics")


def test_smoke_has_evidence_for_every_criterion(start: Run, way: Run) -> None:
    for study, run in ((INITIAL, start), (DYNAMICS, way)):
        assert set(run.found) == {claim.id for claim in CLAIMS if claim.study == study.id}
        for name, evidence in run.found.items():
            assert {criterion.quantity for criterion in CLAIMED[name].criteria} <= set(evidence)
            assert evidence["seeds"] == 2
            assert CLAIMED[name].decide(evidence, "smoke").verdict == "inconclusive"


def test_a_resumed_run_says_the_same(way: Run) -> None:
    assert found_by(DYNAMICS, way.path).found == way.found


def test_the_task_is_white(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "test") as run:
        whole, some = (task(bench_of(INITIAL, run), "digits", count) for count in (None, 50))
        with pytest.raises(InputError, match="at least 1"):
            task(bench_of(INITIAL, run), "digits", 0)
    torch.testing.assert_close(whole.moments.sxx, torch.eye(10, dtype=torch.float64, device="cpu"))
    assert (whole.name, whole.real) == ("digits", True)
    assert some.samples.x.shape == (50, 10)
    assert float(some.moments.syy) == 1
    torch.testing.assert_close(some.samples.x, whole.samples.x[:50])


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
    found = curvature(spec, weights, moments)
    expected = values.abs().max() / values.abs().quantile(0.1)
    assert 10 ** float(log_condition(found["largest"], found["tenth"])) == pytest.approx(float(expected), rel=1e-9)
    assert found["index"] == pytest.approx(float((values < 0).double().mean()))
    assert found["loss"] == pytest.approx(float(loss(weights.flatten())))
    assert found["gradient"] == pytest.approx(float(torch.func.grad(loss)(weights.flatten()).norm()))


def test_rounding_noise_is_masked() -> None:
    numpy.testing.assert_allclose(
        log_condition([1.0, 1.0, 1.0, 2.0], [1e-13, 9e-15, 0.0, 0.2]), [13, *[numpy.nan] * 2, 1]
    )


def test_shortcuts_of_depth_two_are_as_conditioned_at_every_depth(start: Run) -> None:
    found = start.found["B6"]
    assert max(found["range of log10 cond over depth, 2-shortcut"]) < 0.01
    assert found["mean log10 cond by depth, 2-shortcut"][0] < found["mean log10 cond by depth, orthogonal"][0]
    assert min(found["log10 cond at depth 16, Xavier - orthogonal"]) > 1


def test_what_does_not_grow_is_not_reproduced(start: Run) -> None:
    first, trained = start.parts("initial", "initial-trained")
    found = initial.evidence(first, trained)
    assert CLAIMED["B6"].decide({**found["B6"], "seeds": 10}, "quick").verdict == "reproduced"
    first["log_condition"].loc[{"architecture": "xavier", "depth": 16}] = 1.0
    first["log_condition"].loc[{"architecture": "2-shortcut", "depth": 16}] = 1.0
    trained["excess"].loc[{"architecture": "1-shortcut", "depth": 4}] = 1e-6
    found = initial.evidence(first, trained)
    assert CLAIMED["B6"].decide({**found["B6"], "seeds": 10}, "quick").verdict == "not reproduced"
    assert CLAIMED["B20"].decide({**found["B20"], "seeds": 3}, "quick").verdict == "not reproduced"


def test_steps_between_depths_leave_masked_runs_out(start: Run) -> None:
    first, trained = start.parts("initial", "initial-trained")
    first["log_condition"].loc[{"architecture": "xavier"}] = [[3.0, 3.0], [5.0, numpy.nan], [9.0, 6.0]]
    found = initial.evidence(first, trained)
    assert found["B6"]["smallest step of mean log10 cond over depth, Xavier"] == 2


def test_the_best_rate_is_that_of_the_lowest_mean() -> None:
    excess = numpy.array([[[[1.0, 0.1, numpy.inf], [1.0, 0.3, 0.01]]]])
    data = xarray.Dataset({"excess": (("architecture", "depth", "seed", "rate"), excess)}, {"rate": [0.1, 0.2, 0.3]})
    best = initial.at_best_rate(data)
    assert best["rate"].item() == 0.2
    assert best["excess"].values.ravel().tolist() == [0.1, 0.3]
    assert not best["edge"].any()


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


def test_the_grid_spans_the_losses_of_all_runs(way: Run) -> None:
    (data,) = way.parts("dynamics")
    assert (numpy.diff(data["level"].values) < 0).all()
    for name in ("orthogonal", "2-shortcut"):
        assert numpy.isfinite(data["index"].sel(architecture=name)).all()
    start = data.sel(architecture="2-shortcut").isel(level=0)
    assert start["index"].values == pytest.approx(0.5, abs=0.02)
    ratio = data["log_largest"] - data["log_tenth"]
    numpy.testing.assert_allclose(ratio, data["log_condition"], atol=1e-12)


def test_worse_conditioned_networks_are_not_reproduced(way: Run) -> None:
    by_loss, epochs = way.parts("dynamics", "dynamics-epochs")
    for key, low in (("log_condition", 1.0), ("index", 0.4)):
        by_loss[key][:] = low + 0.1
        by_loss[key].loc[{"architecture": "2-shortcut"}] = low
    epochs["drop"][:] = epochs["peak"] + 1

    def verdicts() -> list[str]:
        found = dynamics.evidence(by_loss, epochs)
        return [CLAIMED[name].decide({**found[name], "seeds": 3}, "quick").verdict for name in ("B7", "B8", "B9")]

    assert verdicts() == ["reproduced"] * 3
    for key in ("log_condition", "index"):
        by_loss[key].loc[{"architecture": "2-shortcut"}] = 9.0
    epochs["drop"][:] = epochs["peak"] + epochs["converged"]
    assert verdicts() == ["not reproduced"] * 3


def test_bad_settings_are_named() -> None:
    with pytest.raises(InputError, match="even depths"):
        dataclasses.replace(INITIAL.presets["smoke"], depths=(4, 5))
    with pytest.raises(InputError, match="runs, deep_runs, networks and steps"):
        dataclasses.replace(INITIAL.presets["smoke"], runs=0)
    with pytest.raises(InputError, match="an even number"):
        dataclasses.replace(DYNAMICS.presets["smoke"], depth=3)
    with pytest.raises(InputError, match="at least 3 snapshots"):
        dataclasses.replace(DYNAMICS.presets["smoke"], snapshots=2)


def test_rates_at_which_all_diverge_are_named(tmp_path: Path) -> None:
    settings = dataclasses.replace(SMOKE["B.dynamics"], rates=(1e3,))
    with RunFolder(tmp_path / "run", "test") as run, pytest.raises(InputError, match="diverge at every one"):
        DYNAMICS.run(bench_of(DYNAMICS, run), settings)


def test_the_known_numbers_of_mnist(tmp_path: Path) -> None:
    require("mnist")
    with RunFolder(tmp_path / "run", "test") as run:
        found = task(bench_of(INITIAL, run), f"mnist:{os.environ['SKIPSCOPE_DATA']}")
    assert found.real
    assert found.moments.lowest_loss == pytest.approx(0.3371410, abs=1e-7)
    spec = ShortcutSpec(8)
    near = curvature(spec, initial_weights(spec, "zero", 0, device="cpu"), found.moments)
    assert near["largest"] / near["tenth"] == pytest.approx(1.4666, rel=0.01)
