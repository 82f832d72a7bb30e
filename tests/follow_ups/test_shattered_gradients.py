"""Shattered gradients (Balduzzi et al. 2017): how alike are the input gradients of a random network at random inputs?

Oracle: in the limit of width, two states of correlation r = cos(t) that pass a ReLU are both active where
k0 = 1 - t / pi of the active entries are, and leave with the correlation k1 = (sin t + (pi - t) cos t) / pi (Cho and
Saul 2009). Through a unit a h + b W relu(h) the correlation of gradients is multiplied by (a^2 + b^2 k0) / (a^2 + b^2).
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss

WIDTH, SAMPLES = 200, 48


class Net(nn.Module):
    """skip h + beta W relu(norm(h)). Until a norm has seen data its statistics are 0 and 1: it changes nothing."""

    def __init__(self, length: int, skip: bool, beta: float = 1.0, norm: bool = False) -> None:
        super().__init__()
        self.skip, self.beta = skip, beta
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm1d(WIDTH, affine=False, momentum=None) if norm else nn.Identity(),
                nn.ReLU(),
                nn.Linear(WIDTH, WIDTH, bias=False),
            )
            for _ in range(length)
        )
        self.head = nn.Linear(WIDTH, 1, bias=False)
        self.double()

    def forward(self, h: Tensor) -> Tensor:
        for block in self.blocks:
            h = h + self.beta * block(h) if self.skip else block(h)
        return self.head(h)

    def draw(self) -> None:
        for block in self.blocks:
            nn.init.normal_(block[2].weight, std=(2 / WIDTH) ** 0.5)
        nn.init.normal_(self.head.weight)

    def watch(self) -> None:
        """The norms' statistics are those of many random inputs."""
        for block in self.blocks:
            block[0].reset_running_stats()
        with torch.no_grad():
            self.train()(torch.randn(2048, WIDTH, dtype=torch.float64))


def traced(model: Net) -> tuple[ss.Trunk, Net]:
    names = None if model.skip else [f"blocks.{i}" for i in range(len(model.blocks))]
    return ss.trace(model, torch.randn(SAMPLES, WIDTH, dtype=torch.float64), units=names), model


def correlations(trunk: ss.Trunk, model: Net, draws: int = 32, watch: bool = False) -> list[float]:
    """Mean cosine of the gradients at different inputs, at the entry of every unit."""
    torch.manual_seed(0)
    found = []
    for _ in range(draws):
        model.draw()
        if watch:
            model.watch()
        gradients = trunk.at(torch.randn(SAMPLES, WIDTH, dtype=torch.float64)).gradients(lambda output: output.sum())
        found.append([_mean_cosine(gradient) for gradient in gradients[:-1] if gradient is not None])
    return torch.tensor(found).mean(0).tolist()


def _mean_cosine(vectors: Tensor) -> float:
    directions = vectors / vectors.norm(dim=1, keepdim=True)
    count = len(vectors)
    return (float(directions.sum(0).square().sum()) - count) / (count * (count - 1))


def expected(length: int, skip: bool, beta: float = 1.0) -> float:
    """At the first entry, for inputs of correlation 0."""
    square, product, found = 1.0, 0.0, 1.0
    for _ in range(length):
        angle = math.acos(min(1.0, product / square))
        both = 1 - angle / math.pi
        leaving = (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / math.pi
        found *= (skip + beta**2 * both) / (skip + beta**2)
        product, square = skip * product + beta**2 * square * leaving, (skip + beta**2) * square
    return found


def test_one_unit() -> None:
    plain, residual = (correlations(*traced(Net(1, skip)))[0] for skip in (False, True))
    assert plain == pytest.approx(0.5, abs=0.03)
    assert residual == pytest.approx(0.75, abs=0.03)
    assert (expected(1, False), expected(1, True)) == pytest.approx((0.5, 0.75))


def test_without_skips_it_falls() -> None:
    """Like 2^-L where norms keep the states of different inputs uncorrelated; without norms they become alike, and it
    falls as the oracle says."""
    plain = traced(Net(4, skip=False, norm=True))
    assert correlations(*plain)[0] == pytest.approx(expected(4, False), abs=0.02)
    assert correlations(*plain, 8, watch=True) == pytest.approx([2**-4, 2**-3, 2**-2, 2**-1], rel=0.1)


def test_with_skips_it_falls_slowly_and_hardly_at_all_with_small_branches() -> None:
    whole, small = (correlations(*traced(Net(*form)))[0] for form in ((4, True), (16, True, 1 / 4)))
    assert whole == pytest.approx(expected(4, True), abs=0.03)
    assert whole > 2 * expected(4, False)
    assert small == pytest.approx(expected(16, True, 1 / 4), abs=0.03)
    assert small >= 0.6
