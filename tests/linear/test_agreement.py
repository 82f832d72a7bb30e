"""Samples that influence each other have no Jacobian of their own, in whatever way they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear.agreement import _halves
from tests.trace.nets import Residual

D = 5


def centred(batch: int) -> Tensor:
    x = torch.randn(batch, D)
    return x - x.mean(0)


def from_the_next(x: Tensor) -> Tensor:
    return x + x * torch.sigmoid(x.roll(1, 0))


def from_one_pair(x: Tensor) -> Tensor:
    """Only the last sample depends on another, the one before it."""
    last = x[-1:] + 0.1 * x[-2:-1].square()
    return torch.cat([x[:-1], last])


def by_largest(x: Tensor) -> Tensor:
    return x + 0.1 * x / x.abs().amax()


@pytest.mark.parametrize("function", [from_the_next, from_one_pair, by_largest])
@pytest.mark.parametrize("batch", [2, 3, 8, 13])
def test_coupled_samples_are_refused(function: Callable[[Tensor], Tensor], batch: int) -> None:
    with pytest.raises(ss.InputError, match="couples the samples"):
        ss.Jacobian(function, torch.randn(batch, D, dtype=torch.float64))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(D, track_running_stats=False), nn.BatchNorm1d(D, affine=False)])
def test_batch_statistics_are_refused_on_centred_input_too(norm: nn.BatchNorm1d) -> None:
    if norm.track_running_stats:
        norm.running_mean = norm.running_var = None
    x = centred(3)
    trunk = ss.trace(nn.Sequential(Residual(nn.Sequential(norm, nn.Linear(D, D)))), x)
    for measure in (lambda: trunk.units[0].jacobian(x), lambda: ss.profile(trunk, x)):
        with pytest.raises(ss.InputError, match=r"couples the samples|batch norm without running statistics"):
            measure()


@pytest.mark.parametrize("batch", [2, 3, 4, 7, 16])
def test_every_pair_of_samples_is_apart_in_a_split(batch: int) -> None:
    halves = _halves(batch)
    assert (halves[::2] + halves[1::2] == 1).all()
    for first in range(batch):
        for second in range(batch):
            assert first == second or ((halves[:, first] == 1) & (halves[:, second] == 0)).any()


def test_samples_of_very_different_scale_are_compared_each_with_itself() -> None:
    """The backward is wrong in the small sample alone, next to one that is larger by 1e12."""

    class Dropped(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return 2 * gradient * ctx.saved_tensors[0] * (ctx.saved_tensors[0].abs() > 1)

        @staticmethod
        def jvp(ctx: Any, tangent: Tensor) -> Tensor:
            return 2 * tangent * ctx.saved_tensors[0]

    state = torch.stack([1e6 * torch.ones(D), 1e-6 * torch.ones(D)]).double()
    J = ss.Jacobian(lambda x: Dropped.apply(x), state)
    assert J.routes.push != "forward mode"  # both agree on the large sample
    assert not ss.verify(J).passed
