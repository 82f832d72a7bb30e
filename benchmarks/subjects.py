"""The networks and images that the rows measure."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

import skipscope as ss
from benchmarks.kit import Size
from skipscope.data import digits
from skipscope.training import Settings, train

RESNET56 = "resnet56-cifar-projection"


@cache
def digits_network() -> nn.Module:
    """A ResNet-20 with the embedded digits, trained for three epochs: its ReLUs are as active as after training."""
    torch.manual_seed(0)
    model = ss.build("resnet20-digits")
    train(model, digits().train, Settings(epochs=3, batch=64, rate=0.05))
    return model.eval()


@cache
def resnet56(size: Size) -> nn.Module:
    from safetensors.torch import load_file

    if size.weights is None:
        raise SystemExit(f"give --weights, a safetensors file of {RESNET56}: docs/results/networks holds five")
    model = ss.build(RESNET56)
    model.load_state_dict(load_file(size.weights))
    return model.to(size.device).eval()


def network_and_images(size: Size, count: int) -> tuple[nn.Module, Tensor]:
    """On a GPU a trained ResNet-56, on a CPU one that a minute can measure."""
    if size.name == "gpu":
        return resnet56(size), _cifar(size, count)
    return digits_network(), digits().test_batch(count)


def _cifar(size: Size, count: int) -> Tensor:
    if size.images is None:
        raise SystemExit("give --images, a file of torch.save with normalised test images of CIFAR-10")
    images: Tensor = torch.load(size.images, weights_only=True)
    return images[:count].to(size.device)


def one_per_stage(trunk: ss.Trunk) -> list[str]:
    """The middle unit of each stage, away from the shortcuts that change the size."""
    return [stage.units[len(stage.units) // 2].name for stage in trunk.stages]
