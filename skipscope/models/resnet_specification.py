"""What determines a residual network for images, apart from its weights; see `resnet.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from skipscope.errors import InputError
from skipscope.models.specification import SHORTCUTS, BlockSpec

LAYERS = {"basic": 2, "bottleneck": 3}  # with weights, on the branch of a block
STAGES = 3
LARGE = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # blocks of the stages, by depth


@dataclass(frozen=True)
class ResNetSpec(BlockSpec):
    """depth: 6 n + 2, or 9 n + 2 of bottlenecks. channels: of the stages; a bottleneck lets out 4 times as many.

    A path is `group_width` channels wide in the first stage and wider in the others as `channels` grow; None gives
    bottlenecks about the weights that they have with one path, and basic blocks paths as wide as the stage.
    stochastic_depth: the probability with which the last block's branch is left out in training; it falls linearly to
    the first block. shortcut_depth: convolutions under one shortcut, of basic pre-activation blocks with one path;
    networks of one depth that differ in it alone have the same number of weights (unless their shortcuts have some).
    large: the form for large images, of four stages of bottlenecks.
    """

    network = "ResNet"

    depth: int = 20
    channels: Sequence[int] = (16, 32, 64)
    block: str = "basic"
    shortcut: str = "pad"
    input_channels: int = 3
    stochastic_depth: float = 0.0
    shortcut_depth: int = 2
    large: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("block", self.block, LAYERS)
        self.one_of("shortcut", self.shortcut, SHORTCUTS)
        self.at_least_one("input_channels", self.input_channels)
        self._check_stages()
        if not 0 <= self.stochastic_depth < 1:
            raise InputError(f"ResNet: expected stochastic_depth from 0 to below 1, got {self.stochastic_depth}")
        if self.stochastic_depth and not self.skips:
            raise InputError("ResNet: stochastic_depth expected skips=True; without a skip nothing is left of a block")
        if self.shortcut_depth != 2 and (self.block != "basic" or not self.preactivation or self.cardinality > 1):
            raise InputError(
                f"ResNet: shortcut_depth={self.shortcut_depth} expected basic pre-activation blocks with one path; "
                "give preactivation=True"
            )
        if self.parametrisation is not None and self.block != "basic":
            raise InputError(f"ResNet: parametrisation={self.parametrisation!r} expected basic blocks")

    def _check_stages(self) -> None:
        channels, stages = list(self.channels), 4 if self.large else STAGES
        if len(channels) != stages or channels != sorted(channels) or channels[0] < 1:
            number = "four" if self.large else "three"
            raise InputError(
                f"ResNet: expected the channels of {number} stages, none below the last, got {self.channels}"
            )
        if self.large and (self.block != "bottleneck" or self.depth not in LARGE):
            raise InputError(
                f"ResNet: expected a network for large images to have bottleneck blocks and a depth of "
                f"{', '.join(map(str, LARGE))}, got {self.block} blocks and {self.depth}"
            )
        if not self.large:
            blocks_per_stage(self.depth, self.block, self.shortcut_depth)

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many, by stage."""
        if self.large:
            return LARGE[self.depth]
        return (blocks_per_stage(self.depth, self.block, self.shortcut_depth),) * STAGES

    @property
    def first_group_width(self) -> int:
        """Of the first stage; 0 with one path."""
        if self.cardinality == 1 or self.group_width is not None:
            return self.group_width or 0
        return self.channels[0] if self.block == "basic" else equal_cost_width(self.channels[0], self.cardinality)


def blocks_per_stage(depth: int, block: str = "basic", shortcut_depth: int = 2) -> int:
    """How many blocks a stage of a network of `depth` layers has: the stem and the classifier are two of them."""
    if shortcut_depth < 1:
        raise InputError(f"ResNet: expected shortcut_depth of at least 1, got {shortcut_depth}")
    layers = STAGES * (shortcut_depth if block == "basic" else LAYERS[block])
    count, left = divmod(depth - 2, layers)
    if count < 1 or left:
        lower = max(count, 1) * layers + 2
        near = f"{lower} or {lower + layers}"
        raise InputError(f"ResNet: expected a depth of {layers} n + 2 of {block} blocks, such as {near}, got {depth}")
    return count


def equal_cost_width(width: int, cardinality: int) -> int:
    """The group width at which an aggregated bottleneck has the weights of the bottleneck of one path.

    Xie et al.'s table 2. Solves cardinality * (2 * 4 * width * d + 9 d^2) = (2 * 4 + 9) width^2 for d.
    """
    square, linear, constant = 9 * cardinality, 8 * width * cardinality, -17 * width**2
    root = (-linear + math.sqrt(linear**2 - 4 * square * constant)) / (2 * square)
    return max(1, round(root))
