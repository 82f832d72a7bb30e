"""Small nets and data for the tests of training, on the device that the tests run on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from skipscope.data.dataset import Images
from tests import seeded

CLASSES = 3


def blobs(samples: int = 96) -> Images:
    """Vectors in three classes, far apart."""
    labels = torch.arange(samples) % CLASSES
    noise = torch.randn(samples, CLASSES, generator=seeded.generator(0))
    return Images(4 * torch.eye(CLASSES)[labels] + noise, labels)


def pictures(samples: int = 48) -> Images:
    """8 x 8 pixels in two channels; the class is a bright band."""
    labels = torch.arange(samples) % CLASSES
    pixels = torch.rand(samples, 2, 8, 8, generator=seeded.generator(1)) / 2
    for label in range(CLASSES):
        pixels[labels == label, :, 2 * label : 2 * label + 2] += 0.5
    return Images(pixels, labels)


def net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(CLASSES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))


def plain_net() -> nn.Sequential:
    """Without batch norm: samples do not know of each other."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(CLASSES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


class Dropped(nn.Module):
    """Stochastic depth: a branch that is left out for a whole batch, as the host chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Linear(8, 8)

    def forward(self, h: Tensor) -> Tensor:
        dropped = self.training and torch.rand((), device="cpu").item() < 0.5
        return h if dropped else h + self.branch(h)


def dropping_net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(CLASSES, 8), nn.Tanh(), Dropped(), nn.Linear(8, CLASSES))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.skip = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return self.skip(h) + self.branch(h)


def picture_net(dropout: float = 0.2) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(dropout), nn.Linear(4 * 16, CLASSES))
        return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), Residual(4), nn.ReLU(), head)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """To the last bit on a CPU; a GPU's sums depend on the order in which its threads come."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if value.device.type == "cpu":
            assert torch.equal(value, other[name]), name
        else:
            torch.testing.assert_close(value, other[name], rtol=1e-3, atol=1e-4)
