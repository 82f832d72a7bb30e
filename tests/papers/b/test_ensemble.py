"""An ensemble against its members trained one at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.papers.b.networks import (
    Member,
    Moments,
    Samples,
    ShortcutNet,
    ShortcutSpec,
    grid,
    initial_weights,
    member_weights,
    train_ensemble,
    train_grid,
)
from skipscope.papers.b.networks.ensemble import precision_of
from tests import seeded

SPECS = [
    ShortcutSpec(6, 4, n=0),
    ShortcutSpec(6, 4, n=1),
    ShortcutSpec(6, 4, n=2),
    ShortcutSpec(6, 4, n=2, mid="relu"),
    ShortcutSpec(6, 4, n=2, mid="relu").plain,
    ShortcutSpec(6, 4, n=3, pre="tanh", mid="softplus"),
]


def samples(m: int = 40, d: int = 4) -> Samples:
    generator = seeded.generator(0)
    x, y = torch.randn(2, m, d, dtype=torch.float64, generator=generator, device=generator.device)
    return Samples(x, 0.5 * x + 0.1 * y)


def alone(spec: ShortcutSpec, weights: Tensor, data: Samples, rate: float, steps: int) -> tuple[list[float], Tensor]:
    """Losses before each step and after the last, and the last weights: a module, trained by torch.optim."""
    net = ShortcutNet(spec, weights)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    losses = []
    for step in range(steps + 1):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(data.x), data.y, reduction="sum") / (2 * len(data.x))
        losses.append(loss.item())
        if step < steps:
            loss.backward()
            optimizer.step()
    return losses, net.weights


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.n}-{spec.mid}-{spec.path}")
@pytest.mark.parametrize("memory", [20_000, 10**9])
def test_members_are_trained_as_if_alone(spec: ShortcutSpec, memory: int) -> None:
    data, steps = samples(), 30
    members = grid(["xavier", "orthogonal", "zero"], [0, 1], [0.01, 0.03])
    first = 0.3 * member_weights(spec, members)  # at full size, 1-shortcut networks diverge
    found = train_ensemble(spec, first, data, [member.rate for member in members], steps, memory=memory)
    assert found.losses.shape == (12, steps + 1)
    assert found.diverged_at == (None,) * 12
    for index in (0, 3, 6, 11):
        losses, weights = alone(spec, first[index], data, members[index].rate, steps)
        expected = torch.tensor(losses, dtype=torch.float64, device="cpu")
        torch.testing.assert_close(found.losses[index], expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(found.weights[index], weights, rtol=1e-10, atol=1e-13)
    single = train_ensemble(spec, first[3:4], data, members[3].rate, steps)
    torch.testing.assert_close(single.final_losses, found.final_losses[3:4], rtol=1e-12, atol=0)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.n}-{spec.mid}-{spec.path}")
def test_members_are_trained_alike_on_the_tests_device_and_on_the_cpu(spec: ShortcutSpec) -> None:
    x, y = samples().x.cpu(), samples().y.cpu()
    members = grid(["orthogonal", "zero"], [0, 1], [0.01, 0.03])
    found = []
    for device in (torch.get_default_device(), torch.device("cpu")):
        first = 0.3 * member_weights(spec, members, device=device)
        data = Samples(x.to(device), y.to(device))
        rates = [member.rate for member in members]
        found.append(train_ensemble(spec, first, data, rates, 30, gradient_norms=True, weight_norms=True))
        assert found[-1].weights.device.type == device.type
    here, there = found
    for name in ("losses", "gradient_norms", "weight_norms"):
        torch.testing.assert_close(getattr(here, name), getattr(there, name), rtol=1e-10, atol=0)
    torch.testing.assert_close(here.weights.cpu(), there.weights, rtol=1e-9, atol=1e-13)


def test_moments_are_all_that_a_linear_ensemble_needs() -> None:
    spec, data = ShortcutSpec(6, 4), samples()
    first = member_weights(spec, grid(["zero"], range(3), [0.1]))
    by_samples = train_ensemble(spec, first, data, 0.1, 1000)  # enough for data of any device's random numbers
    by_moments = train_ensemble(spec, first, Moments.of(data), 0.1, 1000)
    assert torch.equal(by_samples.losses, by_moments.losses)
    assert (by_samples.final_losses < 1.1 * Moments.of(data).lowest_loss).all()


@pytest.mark.parametrize("mid", ["identity", "relu"])
def test_diverged_members_are_frozen_and_the_others_go_on(mid: str) -> None:
    spec, data, steps = ShortcutSpec(8, 4, mid=mid), samples(), 60
    rates = [0.01, 100.0, 0.03, 30.0]
    first = member_weights(spec, [Member("xavier", 0, rate) for rate in rates])
    found = train_ensemble(spec, first, data, rates, steps, snapshots=[0, steps], weight_norms=True)
    assert [step is None for step in found.diverged_at] == [True, False, True, False]
    fine = train_ensemble(spec, first[::2], data, rates[::2], steps)
    torch.testing.assert_close(found.losses[::2], fine.losses, rtol=1e-12, atol=0)
    for index in (1, 3):
        at = found.diverged_at[index]
        assert at is not None
        assert 0 < at < steps
        before, after = found.losses[index, :at], found.losses[index, at:]
        assert (before <= 1e6 * before[0]).all()
        assert (after == math.inf).all()
        assert found.weight_norms[index, :at].isfinite().all()
        assert found.weight_norms[index, at:].isnan().all()
        assert found.snapshots[0][index].isfinite().all()
        assert found.snapshots[steps][index].isnan().all()
    assert found.snapshots[steps][0].isfinite().all()
    assert "2 diverged" in str(found)


def test_a_frozen_member_keeps_the_weights_at_which_it_diverged() -> None:
    spec, data = ShortcutSpec(4, 4), samples()
    first = member_weights(spec, grid(["xavier"], [0], [3.0]))
    found = train_ensemble(spec, first, data, 3.0, 50, diverged=10)
    (at,) = found.diverged_at
    assert at is not None
    stopped = train_ensemble(spec, first, data, 3.0, at, diverged=math.inf)
    assert torch.equal(found.weights, stopped.weights)
    assert float(stopped.final_losses) > 10 * float(stopped.losses[0, 0])


def test_all_may_diverge_even_at_the_start() -> None:
    spec = ShortcutSpec(4, 4)
    first = member_weights(spec, grid(["xavier"], [0, 1], [0.1]))
    first[1] = math.nan
    assert train_ensemble(spec, first, samples(), 0.1, 3).diverged_at == (None, 0)
    found = train_ensemble(spec, first[1:], samples(), 0.1, 3)
    assert found.diverged_at == (0,)
    assert found.final_losses.tolist() == [math.inf]


def test_records_snapshots_and_norms() -> None:
    spec, data = ShortcutSpec(4, 4, mid="relu"), samples()
    first = member_weights(spec, grid(["orthogonal"], [0, 1], [0.05]))
    before = first.clone()
    found = train_ensemble(
        spec, first, data, 0.05, 20, record=[0, 5], snapshots=[0, 5, 20], gradient_norms=True, weight_norms=True
    )
    assert torch.equal(first, before)
    assert found.recorded == (0, 5, 20)
    assert list(found.snapshots) == [0, 5, 20]
    assert torch.equal(found.snapshots[0], first.cpu())
    assert torch.equal(found.snapshots[20], found.weights.cpu())
    everything = train_ensemble(spec, first, data, 0.05, 20, gradient_norms=True)
    assert torch.equal(found.losses, everything.losses[:, [0, 5, 20]])
    with pytest.raises(InputError, match="weight_norms: expected those of a training with weight_norms=True"):
        _ = everything.weight_norms
    torch.testing.assert_close(found.weight_norms[:, 0], torch.full((2,), 2.0, dtype=torch.float64, device="cpu"))
    step = train_ensemble(spec, first, data, 0.05, 1).weights - first
    torch.testing.assert_close(step.flatten(1).norm(dim=1).cpu() / 0.05, found.gradient_norms[:, 0])


def test_the_same_numbers_again_and_other_precisions() -> None:
    spec, data = ShortcutSpec(6, 4, mid="relu"), samples()
    members = grid(["zero"], range(3), [0.1])
    runs = [train_ensemble(spec, member_weights(spec, members), data, 0.1, 20) for _ in range(2)]
    assert torch.equal(runs[0].losses, runs[1].losses)
    assert torch.equal(runs[0].weights, runs[1].weights)
    single = train_ensemble(spec, member_weights(spec, members, dtype=torch.float32), data, 0.1, 20)
    assert single.weights.dtype == torch.float32
    torch.testing.assert_close(single.losses, runs[0].losses, rtol=1e-5, atol=0)


def test_threads_are_left_as_they_were() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        spec = ShortcutSpec(2, 4)
        train_ensemble(spec, initial_weights(spec)[None], samples(), 0.1, 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_a_grid_is_trained_in_one_call() -> None:
    spec, data, rates = ShortcutSpec(6, 4, mid="relu"), samples(), [0.1, 0.2]
    members = grid(["zero"], range(3), rates)
    weights = member_weights(spec, members, factor=0.1, device="cpu")
    expected = train_ensemble(spec, weights, data, [member.rate for member in members], 5, weight_norms=True)
    found = train_grid(
        spec, data, "zero", seeds=range(3), rates=rates, steps=5, device="cpu", factor=0.1, weight_norms=True
    )
    assert torch.equal(found.weights, expected.weights)
    assert torch.equal(found.weight_norms, expected.weight_norms)
    assert [precision_of(spec, device) for device in ("cpu", "cuda")] == ["float64", "float32"]
    assert precision_of(ShortcutSpec(6, 4), "cuda") == "float64"


def test_a_grid_is_every_combination() -> None:
    members = grid(["xavier", "zero"], [0, 1], [0.1, 0.2])
    assert members[:3] == [Member("xavier", 0, 0.1), Member("xavier", 0, 0.2), Member("xavier", 1, 0.1)]
    weights = member_weights(ShortcutSpec(4, 3), members, factor=0)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not weights[4:].any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": torch.zeros(4, 3, 3, device="cpu")}, r"\(members, layers, d, d\), got \(4, 3, 3\)"),
        ({"rates": [0.1]}, r"expected one or 2 learning rates above 0, got \[0.1\]"),
        ({"rates": -0.1}, "learning rates above 0"),
        ({"steps": -1}, "expected steps >= 0"),
        ({"diverged": 1.0}, "diverged > 1"),
        ({"record": [11]}, "record: expected steps from 0 to 10, got 10 to 11"),
        ({"snapshots": [-1, 3]}, "snapshots: expected steps from 0 to 10, got -1 to 3"),
        ({"data": samples(5, 4)}, "expected 3 values per sample"),
    ],
)
def test_bad_input(changed: dict[str, Any], message: str) -> None:
    spec = ShortcutSpec(4, 3)
    weights = member_weights(spec, grid(["xavier"], [0, 1], [0.1]))
    options: dict[str, Any] = {"weights": weights, "data": samples(5, 3), "rates": 0.1, "steps": 10, **changed}
    with pytest.raises(InputError, match=message):
        train_ensemble(spec, **options)


def test_no_members() -> None:
    with pytest.raises(InputError, match="at least one member"):
        member_weights(ShortcutSpec(4, 3), [])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mid", ["identity", "relu"])
def test_replayed_steps_are_those_of_the_cpu(mid: str) -> None:
    spec, rates = ShortcutSpec(8, 4, mid=mid), [0.01, 100.0, 0.03]
    generator = torch.Generator("cpu").manual_seed(0)
    x, y = torch.randn(2, 600, 4, dtype=torch.float64, generator=generator, device="cpu")
    first = member_weights(spec, [Member("xavier", 0, rate) for rate in rates], device="cpu")
    options: dict[str, Any] = {"snapshots": [0, 70], "gradient_norms": True, "weight_norms": True}
    expected = train_ensemble(spec, first, Samples(x, 0.5 * x + 0.1 * y), rates, 120, **options)
    data = Samples(x.cuda(), (0.5 * x + 0.1 * y).cuda())
    found = train_ensemble(spec, first.cuda(), data, rates, 120, **options)
    assert [step is None for step in found.diverged_at] == [True, False, True]
    for name in ("losses", "gradient_norms", "weight_norms"):
        torch.testing.assert_close(getattr(found, name)[::2], getattr(expected, name)[::2], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.snapshots[70], expected.snapshots[70], rtol=1e-9, atol=1e-12, equal_nan=True)
