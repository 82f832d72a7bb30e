"""The two networks, and the plain one's chain of blocks: what a trunk is to a network with skips."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from skipscope.linear import Jacobian, Operator
from skipscope.measure.profile import chain
from skipscope.models.resnet import ResNet

STAGES = ("stage1", "stage2", "stage3")
RAISED = 1.0  # standard deviations by which inner thresholds are raised where the law is put to the test


def twins(seed: int, depth: int, channels: Sequence[int], classes: int) -> dict[str, ResNet]:
    """With and without skips; the same initial weights. The caller's random state stays as it is."""
    made = {}
    for name, skips in (("residual", True), ("plain", False)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made[name] = ResNet(depth, channels=channels, input_channels=1, classes=classes, skips=skips)
    return made


def with_raised_thresholds(model: ResNet, deviations: float = RAISED) -> ResNet:
    """A copy with the inner batch norms' biases lowered, so that fewer of the inner ReLUs are active."""
    raised = copy.deepcopy(model)
    with torch.no_grad():
        for block in raised.blocks.values():
            block.norm1.bias.sub_(deviations * block.norm1.weight.abs())  # type: ignore[operator]
    return raised


class Chain:
    """The blocks of a plain network at a few images; Jacobians in float64 and names as a trunk has them."""

    def __init__(self, model: ResNet, images: Tensor) -> None:
        self._model = copy.deepcopy(model).double()
        with torch.no_grad():
            entries = chain(self._model.blocks, self._model.stem(images.double()))
        self._entries = dict(zip(self._model.blocks, entries, strict=False))

    def jacobians(self, *, stages: bool = False) -> dict[str, Operator]:
        """Of every block; of whole stages as well, from the first block's entry to the last one's exit."""
        found: dict[str, Operator] = {
            name: _jacobian(block, self._entries[name], name) for name, block in self._model.blocks.items()
        }
        for number, name in enumerate(STAGES if stages else (), 1):
            found[f"stage {number}"] = _jacobian(
                self._model.get_submodule(name), self._entries[f"{name}.0"], f"stage {number}"
            )
        return found

    def labels(self, *, stages: bool = False) -> dict[str, Any]:
        """Of the same in a dataset: kind of skip, number of the stage from 1."""
        places = [STAGES.index(name.partition(".")[0]) + 1 for name in self._entries]
        skips = ["none" for _ in places]
        if not stages:
            return {"skip": ("unit", skips), "stage": ("unit", places)}
        return {
            "kind": ("unit", ["unit" for _ in places] + ["stage" for _ in STAGES]),
            "skip": ("unit", [*skips, *("" for _ in STAGES)]),
            "stage": ("unit", [*places, *range(1, len(STAGES) + 1)]),
        }


def _jacobian(function: Callable[[Tensor], Tensor], state: Tensor, name: str) -> Jacobian:
    def in_other_form(samples: Sequence[int] | None, _: torch.dtype) -> Jacobian:
        return _jacobian(function, state if samples is None else state[list(samples)], name)

    return Jacobian(function, state, name=name, in_other_form=in_other_form)
