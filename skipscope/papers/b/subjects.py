"""What the studies of paper B work on: whitened principal components with one-hot targets, and the networks' kinds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from skipscope.data import whiten
from skipscope.papers.b.networks import Moments, Samples, ShortcutSpec
from skipscope.papers.kit.bench import Bench

COMPONENTS = 10  # as many as there are classes: the networks are square
LOG_CEILING = 14  # log10 of a condition number, above which it is rounding noise of float64
NOISE = 10.0**-LOG_CEILING  # of the largest |lambda|: smaller ones are rounding errors

# title: shortcut depth n (0: none) and initialisation; the paper's "zero" is 0.01 times Xavier's weights
ARCHITECTURES: dict[str, tuple[int, str]] = {
    "xavier": (0, "xavier"),
    "orthogonal": (0, "orthogonal"),
    "1-shortcut": (1, "zero"),
    "2-shortcut": (2, "zero"),
    "3-shortcut": (3, "zero"),
}


@dataclass(frozen=True, eq=False)
class Task:
    """Inputs whitened to COMPONENTS components and one-hot targets, float64, on the bench's device."""

    samples: Samples
    moments: Moments  # of these samples
    name: str


def task(bench: Bench, data: str = "mnist") -> Task:
    """The training images of a data set."""
    found = bench.data(data)
    white = whiten(found, COMPONENTS)
    samples = Samples(white.x.to(bench.device), white.y.to(bench.device))
    return Task(samples, Moments.of(samples), found.name)


def spec_of(architecture: str, depth: int, kind: str = "linear") -> ShortcutSpec:
    """kind: linear, or relu for ReLUs in the middle; plain networks have one after each odd layer."""
    n, _ = ARCHITECTURES[architecture]
    if kind == "linear":
        return ShortcutSpec(depth, COMPONENTS, n)
    return ShortcutSpec(depth, COMPONENTS, n, mid="relu") if n else ShortcutSpec(depth, COMPONENTS, mid="relu").plain


def lowest(losses: numpy.ndarray) -> int:
    """The learning rate whose mean loss over seeds is the lowest, of losses (seeds, rates) that are infinite where a
    network diverged; the first one if all means are infinite.

    It is chosen by the seeds that are judged, which is the paper's way: the losses at it are optimistic for every kind
    of network alike.
    """
    return int(losses.mean(0).argmin())
