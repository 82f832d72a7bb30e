"""What the studies of trained networks measure: one kind of network, trained in one way on one data set.

A study sweeps over subjects, settings and seeds. A subject names its networks, trains them (or finds them again) and
gives its datasets names that say what it is and hold a part of the hash of everything that determines them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from skipscope.data import Dataset, Split
from skipscope.runs.sweep import keyed
from skipscope.training import Settings
from skipscope.training.networks import Network, Trained

if TYPE_CHECKING:
    from torch import Tensor

    from skipscope.papers.kit.bench import Bench


@dataclass(frozen=True)
class Subject:
    title: str
    model: str  # name of the network
    data: Dataset
    training: Settings
    seeds: tuple[int, ...]
    looks: tuple[int, ...] = ()  # epochs after which networks are measured, in addition to the last; 0: before training
    images: int = 0  # training samples at which the networks are measured

    def network(self, seed: int, device: str) -> Network:
        return Network(self.model, self.data, self.training, seed, device, self.looks)

    def trained(self, bench: Bench, seed: int) -> Trained:
        return bench.trained(self.model, self.data, self.training, seed=seed, snapshots=self.looks)

    def trained_all(self, bench: Bench) -> dict[int, Trained]:
        """By seed; trained at the same time where that is possible."""
        return dict(zip(self.seeds, bench.trained_fleet(self.networks(bench.device)), strict=True))

    def networks(self, device: str) -> list[Network]:
        """One for each seed."""
        return [self.network(seed, device) for seed in self.seeds]

    def key(self, device: str, *seeds: int) -> str:
        """The name of its datasets, or of those of some seeds."""
        networks = [self.network(seed, device).key for seed in seeds or self.seeds]
        return keyed(self.model, {"networks": networks, "images": self.images})

    def samples(self, device: str, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Training images and their labels, as equally from all classes as the number permits."""
        count = self.images if count is None else count
        split: Split = self.data.train
        drawn = self.data.subset(samples=max(count, self.data.classes)).train if count < len(split) else split
        drawn = drawn.select(torch.linspace(0, len(drawn) - 1, min(count, len(drawn)), device="cpu").round().long())
        return drawn.images().to(device), drawn.labels.to(device)
