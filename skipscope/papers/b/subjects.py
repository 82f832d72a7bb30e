"""What paper B trains: the kinds of networks that it compares, on whitened images, and ResNets with pre-activation.

The data are whitened principal components of training images, with one-hot targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from skipscope.data import whiten
from skipscope.papers.b.networks import Moments, Samples, ShortcutSpec
from skipscope.papers.kit import Bench, Quantity
from skipscope.training import Settings

COMPONENTS = 10  # as many as there are classes: the networks are square
MNIST = "whitened MNIST"  # the subject of what concerns n-shortcut networks
CIFAR10 = "pre-activation ResNets on CIFAR-10"
LOWEST_LOSS = Quantity("lowest loss of a linear map")


class Architecture(NamedTuple):
    n: int  # shortcut depth; 0: no shortcuts
    init: str  # of the weights; the paper's "zero" is 0.01 times Xavier's weights

    def spec(self, depth: int, kind: str = "linear") -> ShortcutSpec:
        """kind: linear, or relu for ReLUs in the middle; plain networks then have one after each odd layer."""
        if kind == "linear":
            return ShortcutSpec(depth, COMPONENTS, self.n)
        if self.n:
            return ShortcutSpec(depth, COMPONENTS, self.n, mid="relu")
        return ShortcutSpec(depth, COMPONENTS, mid="relu").plain


ARCHITECTURES = {
    "xavier": Architecture(0, "xavier"),
    "orthogonal": Architecture(0, "orthogonal"),
    "1-shortcut": Architecture(1, "zero"),
    "2-shortcut": Architecture(2, "zero"),
    "3-shortcut": Architecture(3, "zero"),
}
WITH_HESSIANS = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")  # those of figures 4 to 6


@dataclass(frozen=True, eq=False)
class WhitenedData:
    """COMPONENTS values per input and per target, in float64, on the device of the bench."""

    samples: Samples
    moments: Moments  # of these samples
    name: str  # of the data set

    @property
    def subject(self) -> str:
        """What evidence is about: MNIST decides, and what stands in for it does not."""
        return subject_on(self.name)

    def first(self, count: int | None) -> Samples:
        """The first so many samples; None: all of them."""
        return Samples(self.samples.x[:count], self.samples.y[:count])


def subject_on(data: str) -> str:
    """data: the name of a data set."""
    return MNIST if data == "mnist" else f"whitened {data}"


def residual_subject(data: str) -> str:
    """data: the name of a data set."""
    return CIFAR10 if data == "cifar10" else f"pre-activation ResNets on {data}"


def whitened_data(bench: Bench, spec: str) -> WhitenedData:
    """The training images of a data set."""
    found = bench.data(spec)
    white = whiten(found, COMPONENTS)
    samples = Samples(white.x.to(bench.device), white.y.to(bench.device))
    return WhitenedData(samples, Moments.of(samples), found.name)


def residual_training(epochs: int, drops: Sequence[float]) -> Settings:
    """Of ResNets, as in fb.resnet.torch; drops: of the learning rate, as shares of the epochs."""
    return Settings(
        epochs,
        batch=128,
        rate=0.1,
        schedule="step",
        milestones=tuple(round(share * epochs) for share in drops),
        nesterov=True,
        weight_decay=1e-4,
        augmentation="crop-flip",
        precision="bfloat16",
    )
