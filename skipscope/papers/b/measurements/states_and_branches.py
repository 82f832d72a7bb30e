"""What depth does to pre-activation ResNets: the states of untrained ones and the branches of trained ones.

States: variance over all entries after each unit of the first stage, where all states have one shape; batch
normalisation with the batch's own statistics, since untrained running ones are the identity. Branches: standard
deviation over all entries of test images, mean over the units of a trained network.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch
import xarray
from torch import Tensor, nn

from skipscope.data import Dataset
from skipscope.models import ResNet, build
from skipscope.models.blocks import Block
from skipscope.module_hooks import Call, following
from skipscope.papers.b.networks.network import ZERO_FACTOR
from skipscope.papers.kit import Bench
from skipscope.training import Settings

MEASURE_NAME = "shortcut_norms"  # of all datasets of B.norms
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
    for seed in seeds:
        found = bench.trained(f"preresnet{depth}-digits{NARROW}", data, Settings(epochs), seed=seed)
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
