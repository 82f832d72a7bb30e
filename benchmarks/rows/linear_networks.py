"""Paper B's two large computations against the usual way, in one run: do the answers agree, and how much faster is it?

    python benchmarks/paper_b.py [--data mnist:PATH] [--out benchmarks/results/paper-b-cpu.json]

hessian   the spectrum of the exact Hessian of a linear 2-shortcut network of depth 16, from second moments, against
          torch.func.hessian of the loss on the samples and eigvalsh
sweep     figure 7: networks of several learning rates and seeds, trained as one, against one after another with torch's
          modules and gradient descent on all samples; a few of those are trained, and the time is multiplied

One thread each, and medians of rounds that take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import processor
from skipscope.data import load, whiten
from skipscope.papers.b.networks import train_grid
from skipscope.papers.b.networks.hessian import shortcut_hessian
from skipscope.papers.b.networks.loss import Moments, Samples
from skipscope.papers.b.networks.network import (
    ShortcutSpec,
    as_vector,
    from_vector,
    initial_weights,
    outputs,
)
from skipscope.papers.b.subjects import COMPONENTS

DEPTH = 16
SEEDS, RATES = 10, 13  # of the sweep: figure 7 at four rates per decade
STEPS = 1000
FEW_STEPS = 20  # of a training alone, multiplied


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="what is whitened; with mnist:PATH as in the paper")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = load(options.data)
    white = whiten(found, COMPONENTS)
    samples = Samples(white.x, white.y)
    rows = [hessian(samples, options.rounds), sweep(samples, options.rounds)]
    about = {"machine": processor(), "torch": torch.__version__, "data": found.name, "samples": len(samples.x)}
    if options.out:
        options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def in_turns(ways: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Median seconds and the last result of each way."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results = {}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            results[name] = way()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(own) for name, own in seconds.items()}, results


def hessian(samples: Samples, rounds: int) -> dict[str, Any]:
    spec = ShortcutSpec(DEPTH, COMPONENTS, 2)
    weights = initial_weights(spec, "xavier", 0)
    moments = Moments.of(samples)

    def by_torch() -> Tensor:
        def loss(vector: Tensor) -> Tensor:
            return samples.loss(outputs(spec, from_vector(spec, vector)[0], samples.x))[0]

        return torch.linalg.eigvalsh(torch.func.hessian(loss)(as_vector(spec, weights)))

    matrix = shortcut_hessian(spec, weights, moments).matrix
    ways: dict[str, Callable[[], Any]] = {
        "skipscope": lambda: torch.linalg.eigvalsh(shortcut_hessian(spec, weights, moments).matrix),
        "torch.func.hessian": by_torch,
        "eigvalsh alone": lambda: torch.linalg.eigvalsh(matrix),
    }
    seconds, values = in_turns(ways, rounds)
    ours, theirs = values["skipscope"], values["torch.func.hessian"]
    row = {
        "work": f"spectrum of the Hessian, linear 2-shortcut network of depth {DEPTH}, {spec.parameters} weights",
        "seconds": seconds,
        "times faster": seconds["torch.func.hessian"] / seconds["skipscope"],
        "largest difference, relative": float((ours - theirs).abs().max() / theirs.abs().max()),
    }
    print(row, flush=True)
    return row


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


def sweep(samples: Samples, rounds: int) -> dict[str, Any]:
    spec = ShortcutSpec(DEPTH, COMPONENTS, 2)
    rates = numpy.geomspace(1e-3, 1, RATES).tolist()
    moments = Moments.of(samples)

    def together(steps: int) -> Any:
        return train_grid(spec, moments, "zero", seeds=range(SEEDS), rates=rates, steps=steps, device="cpu", record=[])

    def alone() -> float:
        model = Network(initial_weights(spec, "zero", 0))
        optimizer = torch.optim.SGD(model.parameters(), rates[0])
        for _ in range(FEW_STEPS):
            optimizer.zero_grad()
            samples.loss(model(samples.x))[0].backward()
            optimizer.step()
        return float(samples.loss(model(samples.x))[0])

    seconds, results = in_turns({"skipscope": lambda: together(STEPS), "one training": alone}, rounds)
    one_after_another = seconds["one training"] / FEW_STEPS * STEPS * SEEDS * RATES
    ours = float(together(FEW_STEPS).final_losses[0])
    row = {
        "work": f"figure 7 at depth {DEPTH}: {SEEDS} seeds x {RATES} rates, {STEPS} steps",
        "seconds": {"skipscope": seconds["skipscope"], "one after another (multiplied)": one_after_another},
        "times faster": one_after_another / seconds["skipscope"],
        "difference of the first loss, relative": abs(ours / results["one training"] - 1),
    }
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
