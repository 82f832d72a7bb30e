"""Whether a network trains: fixed before any network of a list was trained.

On the 1,437 training digits, in batches of 64: at least 90 % of the answers are right while it trains, in one of 60
epochs at one of its optimiser's rates. A rate is given up where a loss is not finite, or where after 20 epochs no epoch
had 30 % of right answers (a guess has 10 %). Momentum 0.9, or Adam; constant rates, no decay, no clipping.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from benchmarks.check import TRAINS, most_right, some_digits
from benchmarks.unseen.networks import Earlier, Network
from skipscope.check.short_training import Lesson, train_shortly
from skipscope.check.signals import measured
from skipscope.data import digits

EPOCHS = 60
GIVEN_UP_AFTER, GIVEN_UP_BELOW = 20, 0.3
RATES = {"sgd": (0.01, 0.1, 0.001, 0.0001), "adam": (0.001, 0.01, 0.0001)}  # the likeliest first


def trained(network: Network | Earlier) -> tuple[str, dict[str, Any]]:
    """Signals first: they are of the weights before training."""
    torch.set_num_threads(1)
    return network.name, {"words": network.words, **signals(network), **outcome(network)}


def trained_twice(network: Network | Earlier) -> tuple[str, dict[str, Any]]:
    """The short training of the check as well, with its own order of the images, and what it took."""
    torch.set_num_threads(1)
    began = time.process_time()
    model, data = network.build(), digits().train
    short = train_shortly(Lesson.of(model, (data.images(), data.labels)), optimiser=network.optimiser)
    seconds = round(time.process_time() - began, 1)
    name, record = trained(network)
    return name, {**record, "short_training": {**short.to_dict(), "seconds": seconds}}


def signals(network: Network | Earlier) -> dict[str, dict[str, float]]:
    found = measured(network.build(), some_digits())
    return {
        key: {name: round(value, 4) for name, value in values.items()}
        for key, values in (("signals", found.signals), ("errors", found.errors))
    }


def outcome(network: Network | Earlier) -> dict[str, Any]:
    """The best accuracy of an epoch at each rate, until one succeeds."""
    began = time.process_time()
    best: dict[str, float] = {}
    for rate in RATES[network.optimiser]:
        best[str(rate)] = round(best_epoch(network, rate), 4)
        if best[str(rate)] >= TRAINS:
            break
    seconds = round(time.process_time() - began, 1)
    return {"trains": max(best.values()) >= TRAINS, "accuracy": best, "seconds": seconds}


def best_epoch(network: Network | Earlier, rate: float) -> float:
    model = network.build()

    def hopeless(epoch: int, best: float) -> bool:
        return epoch >= GIVEN_UP_AFTER and best < GIVEN_UP_BELOW

    return most_right(model, _optimiser(network.optimiser, model, rate), EPOCHS, network.seed, hopeless)


def _optimiser(name: str, model: nn.Module, rate: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=True)
    return torch.optim.Adam(model.parameters(), lr=rate, fused=True)
