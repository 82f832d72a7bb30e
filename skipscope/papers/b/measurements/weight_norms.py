"""Norms of weights during training: Frobenius norms, mean over the layers (the convolutions of a ResNet)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy
import torch
import xarray
from torch import nn

from skipscope.data import Dataset
from skipscope.papers.b.measurements.states_and_branches import MEASURE_NAME, branch_outputs, images_of
from skipscope.papers.b.networks import ShortcutSpec, train_grid
from skipscope.papers.b.networks.ensemble import precision_of
from skipscope.papers.b.whitened import COMPONENTS, WhitenedData
from skipscope.papers.kit import Bench
from skipscope.training import At, Settings, train
from skipscope.training.networks import Network

RECORDED = 100  # points of a curve over the steps


def shortcut_norms(
    bench: Bench,
    white: WhitenedData,
    kind: str,
    depth: int,
    *,
    networks: int,
    rate: float,
    steps: int,
    samples: int | None,
) -> xarray.Dataset:
    """Norms and losses (seed, step) of 2-shortcut networks from zero. samples: the first so many, for ReLU networks."""
    linear = kind == "linear"
    spec = ShortcutSpec(depth, COMPONENTS, mid="identity" if linear else "relu")
    seeds = bench.seeds(networks)
    trained = train_grid(
        spec,
        white.moments if linear else white.first(samples),
        "zero",
        seeds=seeds,
        rates=[rate],
        steps=steps,
        device=bench.device,
        record={round(step) for step in numpy.linspace(0, steps, RECORDED + 1).tolist()},
        weight_norms=True,
    )
    return xarray.Dataset(
        {"norm": (("seed", "step"), trained.weight_norms.numpy()), "loss": (("seed", "step"), trained.losses.numpy())},
        {"seed": seeds, "step": list(trained.recorded)},
        {
            "measure": MEASURE_NAME,
            "kind": kind,
            "depth": depth,
            "rate": rate,
            "data": white.name,
            "precision": precision_of(spec, bench.device),
        },
    )


def residual_norms(bench: Bench, data: Dataset, settings: Settings, depth: int) -> xarray.Dataset:
    """Of one pre-activation ResNet. The checkpoint stays until the part is written: a run may be killed in between."""
    network = Network(f"preresnet{depth}-cifar", data.to(bench.device), settings, bench.seeds(1)[0], bench.device)
    checkpoint = bench.run.path / "checkpoints" / f"norms-{network.model}.training.safetensors"
    found = bench.part(f"residual-{depth}", partial(_by_epoch, bench, network, checkpoint, depth))
    checkpoint.unlink(missing_ok=True)
    return found


def _by_epoch(bench: Bench, network: Network, checkpoint: Path, depth: int) -> xarray.Dataset:
    """Norms (seed, step) by epoch, and the branches in the end."""
    images, settings = network.data, network.settings
    model = network.initial()
    hook = At(range(settings.epochs + 1), lambda model, epoch, history: {"norm": mean_norm(model)}, name="norms")
    history = train(
        model,
        images.train,
        settings,
        test=images.test,
        test_every=max(1, settings.epochs // 10),
        hooks=[hook],
        checkpoint=checkpoint,
        progress=bench.steps(f"training {network.title}"),
    )
    epochs = range(settings.epochs + 1)
    norms = [float(hook.results[epoch]["norm"]) if epoch in hook.results else numpy.nan for epoch in epochs]
    losses = [numpy.nan, *history.loss]
    branches = branch_outputs(model.eval(), images_of(bench, images))
    return xarray.Dataset(
        {
            "norm": (("seed", "step"), [norms]),
            "loss": (("seed", "step"), [losses + [numpy.nan] * (len(epochs) - len(losses))]),
            "branch": ("seed", [numpy.mean(list(branches.values()))]),
            "test_error": ("seed", [1 - (history.test_accuracy[-1] or numpy.nan)]),
        },
        {"seed": bench.seeds(1), "step": list(epochs)},
        {
            "measure": MEASURE_NAME,
            "kind": "residual",
            "depth": depth,
            "data": images.name,
            "rate": settings.rate,
            "drops": list(settings.milestones),
            "precision": settings.precision,
        },
    )


def mean_norm(model: nn.Module) -> float:
    """Of the convolutions."""
    norms = [module.weight.detach().norm() for module in model.modules() if isinstance(module, nn.Conv2d)]
    return float(torch.stack(norms).mean())
