"""The monitor never changes the training."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import nn

import skipscope as ss
from tests.monitor.loops import BATCH, X, Y, small_model, trained


def watching(**options: Any) -> Any:
    def watch(model: nn.Module, optimizer: torch.optim.Optimizer) -> ss.Monitor:
        options.setdefault("budget", None)
        return ss.Monitor(model, X[:8], every=4, targets=Y[:8], optimizer=optimizer, **options)

    return watch


@pytest.fixture(scope="module", name="alone")
def _alone() -> Any:
    return trained()


def test_losses_weights_and_random_states_are_the_same_to_the_last_bit(alone: Any) -> None:
    drawn: list[Any] = []

    def draws(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        drawn.append((numpy.random.rand(), torch.rand(1)))  # a loss that disturbs every generator
        return nn.functional.cross_entropy(output, targets)

    watched = trained(watching(measures=["sizes", "stable_rank", "conditioning"], loss=draws))
    assert drawn
    assert watched.same_as(alone)


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["singular", "alignment", "sharpness"])
def test_no_dear_measure_changes_the_training(alone: Any, measure: str) -> None:
    assert trained(watching(measures=[measure])).same_as(alone)


def test_gradients_modes_and_hooks_are_as_they_were() -> None:
    model = small_model()
    model[1].dropout.eval()  # a mode of its own
    modes = [module.training for module in model.modules()]
    calls: list[str] = []
    model[2].register_forward_hook(lambda *_: calls.append("forward"))
    model[2].register_full_backward_hook(lambda *_: calls.append("backward"))
    model[2].inner.weight.register_hook(lambda gradient: calls.append("weight"))
    monitor = ss.Monitor(model, X[:8], every=1, targets=Y[:8], rate=0.1, budget=None)
    hooks = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()]
    nn.functional.cross_entropy(model(X[:BATCH]), Y[:BATCH]).backward()
    gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    versions = [tensor._version for tensor in model.state_dict(keep_vars=True).values()]
    calls.clear()
    monitor.step(1.0)
    assert calls == []
    assert monitor.left_out == {}
    assert [module.training for module in model.modules()] == modes
    assert [(len(one._forward_hooks), len(one._forward_pre_hooks)) for one in model.modules()] == hooks
    for before, weight in zip(gradients, model.parameters(), strict=True):
        assert weight.grad is not None
        assert torch.equal(before, weight.grad)
    assert [tensor._version for tensor in model.state_dict(keep_vars=True).values()] == versions


@pytest.mark.slow
def test_an_accumulated_gradient_goes_on_as_it_was() -> None:
    def accumulated(monitor: bool) -> list[torch.Tensor]:
        model = small_model(dropout=0.0)
        watch = ss.Monitor(model, X[:8], every=1, measures=["sizes"], budget=None) if monitor else None
        for part in X.split(16):
            (model(part).square().mean() / 4).backward()
            if watch is not None:
                watch.look()
        return [weight.grad for weight in model.parameters() if weight.grad is not None]

    assert all(torch.equal(one, two) for one, two in zip(accumulated(True), accumulated(False), strict=True))


def test_a_look_inside_autocast_is_in_full_precision() -> None:
    model = small_model()
    monitor = ss.Monitor(model, X[:8], measures=["sizes"])
    monitor.look()
    plain = monitor["sizes"].isel(step=-1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        monitor.steps.last = 1
        monitor.look()
        assert torch.is_autocast_enabled("cpu")
        assert model(X[:8]).dtype == torch.bfloat16
    inside = monitor["sizes"].isel(step=-1)
    assert inside["state_rms"].values.tolist() == plain["state_rms"].values.tolist()


@pytest.mark.slow
def test_a_training_with_a_grad_scaler_is_the_same() -> None:
    def run(watch: bool) -> list[float]:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        monitor = ss.Monitor(model, X[:8], every=2, measures=["sizes"], budget=None) if watch else None
        if monitor is not None:
            optimizer.register_step_post_hook(monitor.hook)
        torch.manual_seed(0)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(X), Y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        assert monitor is None or monitor["sizes"]["step"].values.tolist() == [0, 2, 4]
        return losses

    assert run(True) == run(False)


@pytest.mark.slow
def test_compiled_graphs_are_untouched(alone: Any) -> None:
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        compiled.append(len(graph.graph.nodes))
        return graph.forward

    def wrap(model: nn.Module) -> nn.Module:
        return torch.compile(model, backend=backend)  # type: ignore[return-value]

    try:
        bare = trained(wrap=wrap)
        once = len(compiled)
        torch._dynamo.reset()
        watched = trained(watching(measures=["sizes", "sharpness"]), wrap=wrap)
        assert once > 0
        assert len(compiled) == 2 * once
        assert watched.same_as(bare)
    finally:
        torch._dynamo.reset()
