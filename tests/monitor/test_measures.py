"""What is measured at a look, against dense computations in float64 and closed forms."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import skipscope as ss
from skipscope.monitor.sharpness import Rate
from tests.monitor.loops import X, Y, small_model

SOME = slice(0, 8)


@pytest.fixture(scope="module", name="model")
def _model() -> nn.Module:
    model = small_model().eval()
    with torch.no_grad():
        for block in model[1:-1]:
            block.norm.running_mean.normal_()
            block.norm.running_var.uniform_(0.5, 2)
    return model


@pytest.fixture(scope="module", name="monitor")
def _monitor(model: nn.Module) -> ss.Monitor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    monitor = ss.Monitor(model, X[SOME], targets=Y[SOME], optimizer=optimizer, budget=None, samples=8)
    monitor.look(["stable_rank", "conditioning", "sharpness"])
    assert monitor.left_out == {}
    return monitor


@pytest.mark.slow
def test_the_largest_singular_values_are_those_of_the_dense_jacobians(model: nn.Module, monitor: ss.Monitor) -> None:
    monitor.look(["singular"])
    found = monitor["singular"].isel(step=-1)
    h = model[0](X[SOME])
    for place, block in enumerate(model[1:-1]):
        jacobians = torch.func.vmap(torch.func.jacrev(lambda one, block=block: block(one[None])[0]))(h.detach())
        largest = torch.linalg.svdvals(jacobians.detach().double())[:, 0].quantile(0.5)  # of an even number
        assert float(found["value"][place]) == pytest.approx(float(largest), rel=1e-3)
        h = block(h)


def test_stable_ranks_are_those_of_the_weights(model: nn.Module, monitor: ss.Monitor) -> None:
    found = monitor["stable_rank"].isel(step=-1)
    for name, owner in (("0.weight", ""), ("2.inner.weight", "2"), ("4.weight", "")):
        values = torch.linalg.svdvals(model.get_parameter(name).detach().double())
        here = found.sel(weight=name)
        assert float(here["stable_rank"]) == pytest.approx(float(values.square().sum() / values[0] ** 2), rel=1e-4)
        assert float(here["value"]) == pytest.approx(float(values[0]), rel=1e-4)
        assert here["unit_of_weight"].item() == owner


def test_condition_numbers_are_those_of_weights_and_states(model: nn.Module, monitor: ss.Monitor) -> None:
    found = monitor["conditioning"].isel(step=-1)
    weight = model.get_parameter("1.outer.weight").detach().double()
    assert float(found["weight_condition"].sel(weight="1.outer.weight")) == pytest.approx(
        float(torch.linalg.cond(weight)), rel=1e-6
    )
    state = model[1](model[0](X[SOME])).detach().double()
    assert float(found["state_condition"].sel(unit="2")) == pytest.approx(float(torch.linalg.cond(state)), rel=1e-3)


@pytest.mark.slow
def test_neighbours_are_the_pairs_of_the_alignment(model: nn.Module, monitor: ss.Monitor) -> None:
    monitor.look(["alignment"])
    found = monitor["alignment"].isel(step=-1)
    whole = ss.alignment(ss.trace(model, X[SOME]), X[SOME], k=3, chance=2)
    pairs = whole["coupling_ujv"].median("sample")
    assert found["unit"].values.tolist() == ["1", "2"]
    assert found["next"].values.tolist() == ["2", "3"]
    assert found["coupling"].values == pytest.approx([float(pairs[0, 1]), float(pairs[1, 2])], rel=0.05)


def dense_sharpness(model: nn.Module, *, in_training: tuple[str, ...]) -> tuple[float, float]:
    """The largest eigenvalue of the Hessian and the loss, in float64. in_training: batch norms that have the statistics
    of the batch; dropout is off."""
    model = copy.deepcopy(model).eval().double()
    for name in in_training:
        model.get_submodule(name).train()
    names, weights = zip(*model.named_parameters(), strict=True)
    sizes = [weight.numel() for weight in weights]

    def loss(theta: torch.Tensor) -> torch.Tensor:
        parts = zip(names, theta.split(sizes), weights, strict=True)
        values = {name: part.view(weight.shape) for name, part, weight in parts}
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        output = torch.func.functional_call(model, {**values, **buffers}, (X[SOME].double(),))
        return nn.functional.cross_entropy(output, Y[SOME])

    theta = torch.cat([weight.detach().flatten() for weight in weights])
    hessian = torch.autograd.functional.hessian(loss, theta)
    return float(torch.linalg.eigvalsh(hessian)[-1]), float(loss(theta))


NORMS = ("1.norm", "2.norm", "3.norm")


def test_the_sharpness_is_that_of_the_loss_that_is_trained(model: nn.Module, monitor: ss.Monitor) -> None:
    """Batch norms have the statistics of the batch: with fixed ones the loss is another function."""
    exact, loss = dense_sharpness(model, in_training=NORMS)
    found = monitor["sharpness"].isel(step=-1)
    assert bool(found["converged"])
    assert bool(found["as_trained"])
    assert float(found["value"]) == pytest.approx(exact, rel=0.01)
    assert float(found["loss"]) == pytest.approx(loss, rel=1e-5)
    assert float(found["limit"]) == pytest.approx(2 * 1.5 / 0.1)
    assert abs(dense_sharpness(model, in_training=())[0] / exact - 1) > 0.1


def test_frozen_batch_norms_keep_their_statistics(model: nn.Module) -> None:
    partly = copy.deepcopy(model).train()
    partly[2].norm.eval()
    before = {name: value.clone() for name, value in partly.state_dict().items()}
    monitor = ss.Monitor(partly, X[SOME], 1, ["sharpness"], None, targets=Y[SOME], rate=0.1)
    monitor.look()
    assert float(monitor["sharpness"]["value"][-1]) == pytest.approx(
        dense_sharpness(model, in_training=("1.norm", "3.norm"))[0], rel=0.01
    )
    assert all(torch.equal(value, before[name]) for name, value in partly.state_dict().items())


def test_a_model_without_trained_weights_has_no_sharpness() -> None:
    model = small_model(blocks=1).requires_grad_(False)
    monitor = ss.Monitor(model, X[SOME], targets=Y[SOME])
    assert "weights that are trained" in monitor.left_out["sharpness"]


def test_what_is_wrong_with_the_hessian_is_said_of_the_model(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    monitor = ss.Monitor(other, X[SOME], 1, ["sharpness"], None, targets=Y[SOME])
    other.requires_grad_(False)
    with pytest.warns(UserWarning, match="^sharpness cannot be measured at step 0: Sequential: none of its parameters"):
        monitor.look()


@pytest.mark.parametrize(("frozen", "limit"), [(False, math.nan), (True, 20.0)])
def test_named_units_with_batch_norms_have_no_limit(frozen: bool, limit: float) -> None:
    """They run as the modules that they are, in evaluation mode: the limit would be that of another function."""
    model = small_model(blocks=1, dropout=0.0)
    if frozen:
        model[1].norm.eval()
    trunk = ss.trace(model, X[SOME], units=["1"])
    monitor = ss.Monitor(trunk, X[SOME], 1, ["sharpness"], None, targets=Y[SOME], rate=0.1)
    monitor.look()
    found = monitor["sharpness"].isel(step=-1)
    assert float(found["value"]) > 0
    assert float(found["limit"]) == pytest.approx(limit, nan_ok=True)
    monitor.rate = 1e6
    monitor.step(1.0)
    assert [alarm.name for alarm in monitor.alarms] == (["too sharp for the rate"] if frozen else [])


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
@pytest.mark.parametrize("over", [0.98, 1.02])
def test_steps_on_a_parabola_shrink_below_the_limit_and_grow_above(options: dict[str, float], over: float) -> None:
    weight = nn.Parameter(torch.ones((), dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.1, **options)  # type: ignore[arg-type]
    curvature = over * Rate.of(optimizer, None).limit
    for _ in range(1000):
        optimizer.zero_grad()
        (curvature * weight**2 / 2).backward()
        optimizer.step()
    assert (float(weight.detach().abs()) < 1) == (over < 1)


def test_rates_without_a_limit() -> None:
    weight = [nn.Parameter(torch.ones(1))]
    assert math.isnan(Rate.of(torch.optim.Adam(weight, lr=0.1), None).limit)
    assert Rate.of(None, 0.5).limit == 4
    assert Rate.of(None, lambda: 0.25).limit == 8
    assert math.isnan(Rate.of(None, None).limit)


@pytest.mark.slow
def test_a_measure_that_fails_is_left_out_and_the_rest_goes_on(model: nn.Module) -> None:
    def broken(output: torch.Tensor) -> torch.Tensor:
        return output.sum() + float("inf") * 0 if output.requires_grad else output  # no number, where sizes ask

    monitor = ss.Monitor(model, X[SOME], measures=["sizes", "stable_rank"], budget=None)
    from skipscope.monitor.objective import Objective

    monitor._objective = Objective(broken, None)
    with pytest.warns(UserWarning, match="sizes cannot be measured at step 0: Monitor: expected loss to return one"):
        monitor.look()
    assert "stable_rank" in monitor.datasets
    monitor.look()
    with pytest.warns(UserWarning, match="the monitor leaves sizes out"):
        monitor.look()
    assert "Left out: sizes" in str(monitor)
    monitor.look()


def test_units_that_were_named_are_looked_at(model: nn.Module) -> None:
    plain = nn.Sequential(nn.Linear(4, 8), *(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)))
    trunk = ss.trace(plain, X[SOME], units=["1", "2"])
    monitor = ss.Monitor(trunk, X[SOME], measures=["sizes"], budget=None)
    assert monitor["sizes"]["unit"].values.tolist() == ["1", "2"]
    assert monitor["sizes"]["gradient_gain"].notnull().all()
