"""The two networks, with the same questions answered by both: states, Jacobians of blocks and of stages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from skipscope.linear import Jacobian, Operator
from skipscope.measure.chain import states
from skipscope.models.resnet import ResNet
from skipscope.trace import Point, Trunk, trace

STAGES = ("stage1", "stage2", "stage3")


def twins(seed: int, depth: int, channels: Sequence[int], classes: int) -> dict[str, ResNet]:
    """With and without skips; the same initial weights. The caller's random state stays as it is."""
    made = {}
    for name, skips in (("residual", True), ("plain", False)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made[name] = ResNet(depth, channels=channels, input_channels=1, classes=classes, skips=skips)
    return made


class Twin:
    """A trained network at a batch of images, in evaluation mode.

    The residual one is measured through its trunk. The plain one has no residual units; its blocks are evaluated as
    they are, on a copy in float64 (the trunk's Jacobians are in float64 as well).
    """

    def __init__(self, name: str, model: ResNet, images: Tensor) -> None:
        self.name, self.model, self.images = name, model.eval(), images

    @cached_property
    def trunk(self) -> Trunk:
        return trace(self.model, self.images[:2])

    def point(self, samples: int) -> Point:
        return self.trunk.at(self.images[:samples])

    @cached_property
    def _double(self) -> ResNet:
        return copy.deepcopy(self.model).double()

    @property
    def unit_names(self) -> list[str]:
        return list(self.model.blocks)

    @property
    def states(self) -> list[Tensor]:
        """The entry of every block, then the last exit: in the type that the network was trained in."""
        with torch.no_grad():
            return states(self.model.blocks, self.model.stem(self.images))

    def jacobians(self, samples: int) -> dict[str, Operator]:
        """Of every block at the first images, by name."""
        if self.model.skips:
            point = self.point(samples)
            return {unit.name: unit.jacobian(point) for unit in self.trunk.units}  # type: ignore[attr-defined]
        return {
            name: _jacobian(block, entry, name)
            for (name, block), entry in zip(self._double.blocks.items(), self._entries(samples), strict=False)
        }

    def stage_jacobians(self, samples: int) -> dict[str, Operator]:
        """Of every stage, from its first block's entry to its last block's exit."""
        if self.model.skips:
            point = self.point(samples)
            return {
                name: stage.jacobian(point)  # type: ignore[attr-defined]
                for name, stage in zip(STAGES, self.trunk.stages, strict=True)
            }
        entries = dict(zip(self.unit_names, self._entries(samples), strict=False))
        return {name: _jacobian(self._double.get_submodule(name), entries[f"{name}.0"], name) for name in STAGES}

    def with_raised_thresholds(self, deviations: float) -> Twin:
        """The same network with the inner batch norms' biases lowered, so that fewer of the inner ReLUs are active."""
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            for block in model.blocks.values():
                block.norm1.bias.sub_(deviations * block.norm1.weight.abs())  # type: ignore[operator]
        return Twin(self.name, model, self.images)

    def _entries(self, samples: int) -> list[Tensor]:
        with torch.no_grad():
            return states(self._double.blocks, self._double.stem(self.images[:samples].double()))


def _jacobian(function: Callable[[Tensor], Tensor], state: Tensor, name: str) -> Jacobian:
    def again(samples: Sequence[int] | None, _: torch.dtype) -> Jacobian:
        return _jacobian(function, state if samples is None else state[list(samples)], name)

    return Jacobian(function, state, name=name, again=again)
