"""A small training with everything that a look could disturb: dropout, batch norms, momentum, random batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn

import skipscope as ss

WIDTH, CLASSES, BATCH = 8, 3, 16


class Block(nn.Module):
    def __init__(self, width: int = WIDTH, dropout: float = 0.2) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.inner = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.outer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(self.dropout(torch.relu(self.inner(self.norm(x)))))


def small_model(blocks: int = 3, seed: int = 0, dropout: float = 0.2) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(4, WIDTH), *(Block(dropout=dropout) for _ in range(blocks)), nn.Linear(WIDTH, CLASSES)
    )


def labelled(count: int = 64, seed: int = 1) -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=numbers)
    return x, x[:, :CLASSES].argmax(1)


X, Y = labelled()


class Trained(NamedTuple):
    losses: list[float]
    weights: dict[str, Tensor]
    generators: tuple[Any, ...]
    model: nn.Module

    def same_as(self, other: Trained) -> bool:
        """To the last bit."""
        return (
            self.losses == other.losses
            and all(torch.equal(value, other.weights[name]) for name, value in self.weights.items())
            and all(str(one) == str(two) for one, two in zip(self.generators, other.generators, strict=True))
        )


def trained(
    watch: Callable[[nn.Module, torch.optim.Optimizer], ss.Monitor | None] = lambda model, optimizer: None,
    *,
    steps: int = 12,
    model: nn.Module | None = None,
    rate: float = 0.1,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
) -> Trained:
    """wrap: what the loop calls in place of the model, such as torch.compile of it."""
    model = small_model() if model is None else model
    called = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    monitor = watch(called, optimizer)
    torch.manual_seed(2)
    random.seed(2)
    numpy.random.seed(2)
    losses = []
    for _ in range(steps):
        chosen = torch.randint(len(X), (BATCH,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(called(X[chosen]), Y[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if monitor is not None:
            monitor.step(loss)
    if monitor is not None:
        monitor.close()
    generators = (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state())
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return Trained(losses, weights, generators, model)
