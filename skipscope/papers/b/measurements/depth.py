"""What depth does to networks: norms of their weights in training, states of untrained ones, branches of trained ones.

Each function gives one dataset of B.norms. Norms: Frobenius norms, mean over the layers (the convolutions of a ResNet).
States: variance over all entries after each unit of the first stage, where all states have one shape; batch
normalisation with the batch's own statistics, since untrained running ones are the identity. Branches: standard
deviation over all entries of test images, mean over the units of a trained network. ResNets have pre-activation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy
import torch
import xarray
from torch import Tensor, nn

from skipscope.data import Dataset
from skipscope.models import ResNet, build
from skipscope.models.blocks import Block
from skipscope.module_hooks import Call, following
from skipscope.papers.b.networks import ShortcutSpec, train_grid
from skipscope.papers.b.networks.ensemble import precision_of
from skipscope.papers.b.networks.network import ZERO_FACTOR
from skipscope.papers.b.subjects import COMPONENTS, WhitenedData
from skipscope.papers.kit import Bench
from skipscope.runs.sweep import merged
from skipscope.training import At, FleetMember, History, Settings, train_fleet
from skipscope.training.fleet_part import AT_A_TIME, even_groups
from skipscope.training.networks import Network

MEASURE_NAME = "shortcut_norms"  # of all datasets of B.norms
RECORDED = 100  # points of a curve over the steps
IMAGES = 256  # whose states and branches are measured
NARROW = "-n4"  # option of the networks that are trained on digits: 4, 8 and 16 channels
STARTS = {"without BatchNorm": "-nonorm", "with BatchNorm": "", "from zero": "-nonorm"}  # option of the network's name


def images_of(bench: Bench, data: Dataset) -> Tensor:
    return data.test_batch(min(IMAGES, len(data.test)), bench.seed).to(bench.device)


def states(bench: Bench, data: Dataset, seeds: Sequence[int], depth: int) -> xarray.Dataset:
    """Variance (start, seed, unit) after each unit of the first stage: what enters has the scale of the images."""
    images = images_of(bench, data)
    found = []
    for start, option in STARTS.items():
        rows = []
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = build(f"preresnet{depth}-digits{option}").to(bench.device)
            if start == "from zero":
                _shrink(model)
            rows.append(_variances(model.train(), images))
        found.append(rows)
    variance = numpy.array(found)
    return xarray.Dataset(
        {"variance": (("start", "seed", "unit"), variance)},
        {"start": list(STARTS), "seed": list(seeds), "unit": range(1, variance.shape[-1] + 1)},
        {"measure": MEASURE_NAME, "kind": "states", "depth": depth, "data": data.name, "images": len(images)},
    )


@torch.no_grad()
def _shrink(model: ResNet) -> None:
    for block in model.blocks.values():
        for convolution in block.modules():
            if isinstance(convolution, nn.Conv2d):
                convolution.weight.mul_(ZERO_FACTOR)


@torch.no_grad()
def _variances(model: ResNet, images: Tensor) -> list[float]:
    h, found = model.stem(images), []
    for block in model.stage1:
        h = block(h)
        found.append(float(h.double().var()))
    return found


def branches(bench: Bench, data: Dataset, seeds: Sequence[int], depth: int, epochs: int) -> xarray.Dataset:
    """Mean standard deviation (seed) of the branches of networks trained on digits; NaN where one diverged."""
    images = images_of(bench, data)
    means, errors = [], []
    name = f"preresnet{depth}-digits{NARROW}"
    for found in bench.trained_fleet([Network(name, data, Settings(epochs), seed, bench.device) for seed in seeds]):
        outputs = list(branch_outputs(found.model, images).values())
        means.append(numpy.nan if found.diverged else float(numpy.mean(outputs)))
        errors.append(1 - found.test_accuracy)
    return xarray.Dataset(
        {"branch": ("seed", means), "test_error": ("seed", errors)},
        {"seed": list(seeds)},
        {"measure": MEASURE_NAME, "kind": "branches", "depth": depth, "data": data.name, "images": len(images)},
    )


@torch.no_grad()
def branch_outputs(model: ResNet, images: Tensor) -> dict[str, float]:
    """The standard deviation of each unit's branch."""
    found: dict[str, float] = {}

    blocks: dict[str, Block] = dict(model.blocks)

    def entered(call: Call) -> None:
        found[call.path] = float(blocks[call.path].branch(call.args[0]).double().std())

    with following(blocks, entered=entered):
        model(images)
    return found


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


def residual_norms(
    bench: Bench, data: Dataset, settings: Settings, depths: Sequence[int], networks: int
) -> list[xarray.Dataset]:
    """Of pre-activation ResNets, a dataset for each depth. They are trained together, and kept one by one."""
    each = [
        _Residual(depth, Network(f"preresnet{depth}-cifar", data, settings, seed, bench.device))
        for depth in depths
        for seed in bench.seeds(networks)
    ]
    pieces: dict[int, list[xarray.Dataset]] = {depth: [] for depth in depths}
    for group in even_groups(each, AT_A_TIME):
        checkpoint = bench.run.path / "checkpoints" / f"{group[0].part}-and-others.training.safetensors"
        trained = cache(partial(_trained_together, bench, group, checkpoint))
        for one in group:
            pieces[one.depth].append(bench.part(one.part, partial(_by_epoch, bench, one, trained)))
        checkpoint.unlink(missing_ok=True)  # not before all parts are written: a run may be killed in between
    return [
        bench.part(f"residual-{depth}", partial(merged, own, "seed", measure=MEASURE_NAME))
        for depth, own in pieces.items()
    ]


@dataclass(frozen=True)
class _Residual:
    """One network of B.norms."""

    depth: int
    network: Network

    @property
    def part(self) -> str:
        return f"residual-{self.depth}-{self.network.seed}"


Together = dict[_Residual, tuple[FleetMember, History]]


def _trained_together(bench: Bench, group: Sequence[_Residual], checkpoint: Path) -> Together:
    members = []
    for one in group:
        network = one.network
        epochs = range(network.settings.epochs + 1)
        hook = At(epochs, lambda model, epoch, history: {"norm": mean_norm(model)}, name="norms")
        data = network.data
        members.append(FleetMember(network.initial(), data.train, network.own_settings, data.test, [hook]))
    histories = train_fleet(
        members,
        test_every=max(1, group[0].network.settings.epochs // 10),
        checkpoint=checkpoint,
        progress=bench.steps(f"training {len(group)} pre-activation ResNets"),
    )
    return dict(zip(group, zip(members, histories, strict=True), strict=True))


def _by_epoch(bench: Bench, one: _Residual, trained: Callable[[], Together]) -> xarray.Dataset:
    """Norms (seed, step) by epoch, and the branches in the end. trained: gives it and others."""
    member, history = trained()[one]
    settings, (hook,) = member.settings, member.hooks
    epochs = range(settings.epochs + 1)
    norms = [float(hook.results[epoch]["norm"]) if epoch in hook.results else numpy.nan for epoch in epochs]
    losses = [numpy.nan, *history.loss]
    branches = branch_outputs(member.model.eval(), images_of(bench, one.network.data))  # type: ignore[arg-type]
    return xarray.Dataset(
        {
            "norm": (("seed", "step"), [norms]),
            "loss": (("seed", "step"), [losses + [numpy.nan] * (len(epochs) - len(losses))]),
            "branch": ("seed", [numpy.mean(list(branches.values()))]),
            "test_error": ("seed", [1 - (history.test_accuracy[-1] or numpy.nan)]),
        },
        {"seed": [one.network.seed], "step": list(epochs)},
        {
            "part": "piece",
            "kind": "residual",
            "depth": one.depth,
            "data": one.network.data.name,
            "rate": settings.rate,
            "epochs": settings.epochs,
            "drops": list(settings.milestones),
            "precision": settings.precision,
        },
    )


def mean_norm(model: nn.Module) -> float:
    """Of the convolutions."""
    norms = [module.weight.detach().norm() for module in model.modules() if isinstance(module, nn.Conv2d)]
    return float(torch.stack(norms).mean())


def log_slope(x: numpy.ndarray, y: numpy.ndarray) -> float:
    """Of log y over log x, by least squares, where y is finite."""
    seen = numpy.isfinite(y)
    return float(numpy.polyfit(numpy.log(x[seen]), numpy.log(y[seen]), 1)[0]) if seen.sum() > 1 else math.nan
