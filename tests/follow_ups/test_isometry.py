"""Isometry at initialisation (Tarnowski et al. 2018): the end-to-end Jacobian of a traced residual network.

The closed form itself is checked in tests/theory/test_residual_isometry.py. A long chain is the same short one several
times, with other weights each time: what enters a span are the columns that left the last one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.papers.c.theory.residual_isometry import residual_isometry
from tests.slow import thinned

WIDTH, LENGTH, TRACED = 400, 200, 25


class Chain(nn.Module):
    """h + F(h), L times."""

    def __init__(self, units: int, width: int, branch: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.units = nn.ModuleList(branch(width) for _ in range(units))

    def forward(self, h: Tensor) -> Tensor:
        for unit in self.units:
            h = h + unit(h)
        return h


def linear(width: int) -> nn.Module:
    return nn.Linear(width, width, bias=False, dtype=torch.float64)


def rectified(width: int) -> nn.Module:
    return nn.Sequential(nn.ReLU(), linear(width))


def two_layers(width: int) -> nn.Module:
    first, second = (nn.Linear(*sides, bias=False, dtype=torch.float64) for sides in ((width, 64), (64, width)))
    return nn.Sequential(first, second)


def draw(model: Chain, variance: float, generator: torch.Generator) -> None:
    """Gaussian weights: each unit's branch has outputs of this variance per unit of its input."""
    for unit in model.units:
        weights = list(unit.parameters())
        for weight in weights:
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64, device="cpu")
            share = variance if weight is weights[-1] else 1.0
            weight.data.copy_(drawn * (share / weight.shape[1]) ** 0.5)


def end_to_end(trunk: ss.Trunk, model: Chain, variance: float, length: int, seed: int) -> Tensor:
    """J of `length` units, n x n."""
    generator = torch.Generator("cpu").manual_seed(seed)
    width = trunk[0].entry_shape[0]
    state = torch.randn(1, width, generator=generator, dtype=torch.float64, device="cpu")
    state = state.to(torch.get_default_device())
    J = torch.eye(width, dtype=torch.float64)[None]
    for _ in range(length // len(trunk)):
        draw(model, variance / length, generator)
        point = trunk.at(state)
        J = trunk.span(0, -1).jacobian(point).matmat(J)
        state = point.states[-1].detach()
    return J[0]


def moments(J: Tensor) -> list[float]:
    gram = J @ J.mT
    return [float(gram.trace()) / len(gram), float(gram.square().sum()) / len(gram)]


@pytest.fixture(scope="module")
def chain() -> tuple[ss.Trunk, Chain]:
    model = Chain(TRACED, WIDTH, linear)
    return ss.trace(model, torch.zeros(1, WIDTH, dtype=torch.float64)), model


@pytest.mark.parametrize("variance", thinned([0.25, 1.0], fast=[1.0]))
def test_moments_of_a_long_linear_chain(chain: tuple[ss.Trunk, Chain], variance: float) -> None:
    """Of one draw: its second moment has a deviation of 0.8 % at c = 0.25 and of 2 % at c = 1."""
    found = moments(end_to_end(*chain, variance, LENGTH, 0))
    expected = residual_isometry(variance)
    assert found == pytest.approx([expected.moment(1), expected.moment(2)], rel=0.03)


@pytest.mark.slow
def test_mean_moments_of_many_draws(chain: tuple[ss.Trunk, Chain]) -> None:
    """Ten draws at c = 1, against products of as many free factors: 1 % of the limit is the length's."""
    s = 1 / LENGTH
    mean = (1 + s) ** LENGTH
    expected = [mean, mean**2 * (1 + LENGTH * (2 * s + s**2) / (1 + s) ** 2)]
    found = torch.tensor([moments(end_to_end(*chain, 1.0, LENGTH, seed)) for seed in range(10)], dtype=torch.float64)
    assert found.mean(0).tolist() == pytest.approx(expected, rel=0.02)


def distance(J: Tensor, variance: float) -> float:
    """Of the quantiles of log s from those of the closed form: root mean square, over the spread of these."""
    values = ss.singular_values(ss.Dense(J)).values[0].log().cpu()
    logs, density = residual_isometry(variance).log_density()
    below = torch.cumulative_trapezoid(density, logs)
    share = (torch.arange(len(values), dtype=torch.float64, device="cpu") + 0.5) / len(values)
    quantiles = logs[1:][torch.searchsorted(below, share).clamp(max=len(below) - 1)].flip(0)
    return float((values - quantiles).norm() / quantiles.norm())


@pytest.mark.parametrize("branch", [linear, two_layers])
def test_the_spectrum_depends_on_the_variance_alone(branch: Callable[[int], nn.Module]) -> None:
    """Whatever the length and the branch."""
    model = Chain(5, 128, branch)
    trunk = ss.trace(model, torch.zeros(1, 128, dtype=torch.float64))
    for length in (50, 150):
        J = end_to_end(trunk, model, 0.5, length, 0)
        assert distance(J, 0.5) < 0.05
        assert distance(J, 1.0) > 0.2


def test_units_that_share_their_active_entries_are_not_independent() -> None:
    """W relu(h) has half the variance of W; its spectrum is wider than that of independent units."""
    model = Chain(5, 128, rectified)
    trunk = ss.trace(model, torch.zeros(1, 128, dtype=torch.float64))
    assert distance(end_to_end(trunk, model, 2 * 0.5, 100, 0), 0.5) > 0.05


@pytest.mark.slow
def test_a_chain_that_is_traced_whole() -> None:
    model = Chain(LENGTH, WIDTH, linear)
    x = torch.zeros(1, WIDTH, dtype=torch.float64)
    trunk = ss.trace(model, x)
    assert len(trunk) == LENGTH
    for variance in (0.25, 1.0):
        found = moments(end_to_end(trunk, model, variance, LENGTH, 0))
        expected = residual_isometry(variance)
        assert found == pytest.approx([expected.moment(1), expected.moment(2)], rel=0.03)
