"""Paper B's two large computations, on the whitened digits.

spectrum of the Hessian   of a linear 2-shortcut network of depth 16, exact, from second moments; against
                          torch.func.hessian of the loss on the samples, and eigvalsh
figure 7                  networks of several learning rates and seeds, trained as one; against one after another with
                          torch's modules and gradient descent on all samples, of which a few steps of one network run
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from benchmarks.kit import OURS, Size, Way, Work
from skipscope.cores import one_thread
from skipscope.data import load, whiten
from skipscope.papers.b.networks import train_grid
from skipscope.papers.b.networks.hessian import shortcut_hessian
from skipscope.papers.b.networks.loss import Moments, Samples
from skipscope.papers.b.networks.network import ShortcutSpec, as_vector, from_vector, initial_weights, outputs
from skipscope.papers.b.subjects import COMPONENTS

SEEDS, RATES = 10, 13  # of the sweep: figure 7 at four rates per decade


def works(size: Size) -> Iterator[Work]:
    white = whiten(load("digits"), COMPONENTS)
    samples = Samples(white.x.to(size.device), white.y.to(size.device))
    if size.device == "cpu":
        yield _hessian(samples, size.pick(smoke=8, cpu=16, gpu=16))
    yield _sweep(samples, size)


def _hessian(samples: Samples, depth: int) -> Work:
    spec = ShortcutSpec(depth, COMPONENTS, 2)
    weights = initial_weights(spec, "xavier", 0)
    moments = Moments.of(samples)

    def by_torch() -> Tensor:
        def loss(vector: Tensor) -> Tensor:
            return samples.loss(outputs(spec, from_vector(spec, vector)[0], samples.x))[0]

        return torch.linalg.eigvalsh(torch.func.hessian(loss)(as_vector(spec, weights)))

    def difference(answers: Mapping[str, Any]) -> float:
        theirs = answers["torch.func.hessian and eigvalsh"]
        return float((answers[OURS] - theirs).abs().max() / theirs.abs().max())

    return Work(
        f"spectrum of the Hessian, linear 2-shortcut network of depth {depth}, {spec.parameters:,} weights",
        {
            OURS: Way(lambda: torch.linalg.eigvalsh(shortcut_hessian(spec, weights, moments).matrix)),
            "torch.func.hessian and eigvalsh": Way(by_torch),
        },
        difference,
        allowed=1e-10,
        goals={"torch.func.hessian and eigvalsh": 20},
        memory=True,
    )


class Network(nn.Module):
    """The same network as a user of torch writes it."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*weight.shape, bias=False, dtype=weight.dtype) for weight in weights)
        with torch.no_grad():
            for layer, weight in zip(self.layers, weights, strict=True):
                layer.weight.copy_(weight)

    def forward(self, x: Tensor) -> Tensor:
        for first, second in zip(self.layers[::2], self.layers[1::2], strict=True):
            x = x + second(first(x))
        return x


def _sweep(samples: Samples, size: Size) -> Work:
    depth, steps, few = 16, size.pick(smoke=100, cpu=1000, gpu=1000), size.pick(smoke=10, cpu=20, gpu=50)
    spec = ShortcutSpec(depth, COMPONENTS, 2)
    rates = numpy.geomspace(1e-3, 1, RATES).tolist()
    moments = Moments.of(samples)

    def together(steps: int) -> Any:
        seeds, device = range(SEEDS), size.device
        return train_grid(spec, moments, "zero", seeds=seeds, rates=rates, steps=steps, device=device, record=[])

    def alone() -> float:
        model = Network(initial_weights(spec, "zero", 0)).to(size.device)
        optimizer = torch.optim.SGD(model.parameters(), rates[0])
        with one_thread():  # faster than two, for layers of ten units
            for _ in range(few):
                optimizer.zero_grad()
                samples.loss(model(samples.x))[0].backward()
                optimizer.step()
        return float(samples.loss(model(samples.x))[0].detach())

    def difference(answers: Mapping[str, Any]) -> float:
        """Of the first network's loss after the steps that the other way takes."""
        return abs(float(together(few).final_losses[0]) / answers["one network after another"] - 1)

    return Work(
        f"figure 7 at depth {depth}: {SEEDS} seeds x {RATES} rates, {steps} steps",
        {
            OURS: Way(lambda: together(steps)),
            "one network after another": Way(alone, few / (steps * SEEDS * RATES)),
        },
        difference,
        allowed=1e-9,
        goals={"one network after another": 50},
    )
