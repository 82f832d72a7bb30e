"""The residual networks for small images, of 6 n + 2 layers (bottleneck: 9 n + 2), and their plain twins.

    stem      convolution 3 x 3, batch norm, ReLU
    3 stages  n blocks each; the first block of the second and third stage halves the image
    head      mean over the image, linear classifier

and those for large images, of 50, 101 or 152 layers:

    stem      convolution 7 x 7 of stride 2, batch norm, ReLU, maximum over 3 x 3 places of stride 2
    4 stages  of bottlenecks, in the numbers of He et al.'s table 1; as above from the second on
    head      as above

What a block computes is in `blocks/`. Without skips (`skips=False`) a block is its branch alone: the plain twin. With
shortcuts that have no weights both have the same weights, and one seed gives both the same initial values.

In a pre-activation network the norm and the activation of the stem stand before the mean instead, as `final_norm`.

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2.
K. He, X. Zhang, S. Ren, J. Sun: Identity Mappings in Deep Residual Networks, ECCV 2016.
S. Xie, R. Girshick, P. Dollar, Z. Tu, K. He: Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.blocks import ACTIVATIONS, BLOCKS, SHORTCUTS, Block, BlockPlan, equal_cost_width
from skipscope.models.initialisation import draw
from skipscope.models.network import BlockNetwork
from skipscope.models.specification import BlockSpec

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
        self.one_of("block", self.block, ("basic", "bottleneck"))
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
    def kind(self) -> type[Block]:
        return BLOCKS[self.block, self.preactivation, self.cardinality > 1]

    @property
    def first_group_width(self) -> int:
        """Of the first stage; 0 with one path."""
        if self.cardinality == 1 or self.group_width is not None:
            return self.group_width or 0
        return self.channels[0] if self.block == "basic" else equal_cost_width(self.channels[0], self.cardinality)

    def plans(self) -> list[list[BlockPlan]]:
        """Of all blocks, by stage."""
        stages: list[list[BlockPlan]] = []
        before, number, total = self.channels[0], 0, sum(self.blocks)
        for stage, (width, count) in enumerate(zip(self.channels, self.blocks, strict=True)):
            plans = []
            for index in range(count):
                number += 1
                plans.append(
                    BlockPlan(
                        before=before,
                        width=width,
                        stride=2 if stage > 0 and index == 0 else 1,
                        shortcut=self.shortcut if self.skips else None,
                        batch_norm=self.batch_norm,
                        activation=self.activation,
                        cardinality=self.cardinality,
                        group_width=max(1, self.first_group_width * width // self.channels[0]),
                        convolutions=self.shortcut_depth,
                        survival=1 - self.stochastic_depth * number / total,
                        scale=self.scale,
                        parametrisation=self.parametrisation,
                    )
                )
                before = self.kind.expansion * width
            stages.append(plans)
        return stages


class ResNet(BlockNetwork):
    """The options are the fields of `ResNetSpec`."""

    stage1: nn.Sequential
    stage2: nn.Sequential
    stage3: nn.Sequential
    stage4: nn.Sequential  # of the form for large images

    def __init__(self, depth: int = 20, **options: Any) -> None:
        super().__init__()
        spec = ResNetSpec(depth, **options)
        self.spec, self.depth, self.skips, self.preactivation = spec, depth, spec.skips, spec.preactivation
        self.activation = ACTIVATIONS[spec.activation]
        first, size = spec.channels[0], 7 if spec.large else 3
        self.conv = nn.Conv2d(spec.input_channels, first, size, 2 if spec.large else 1, padding=size // 2, bias=False)
        norm = BlockPlan(first, first, batch_norm=spec.batch_norm).norm
        if not spec.preactivation:
            self.norm = norm(first)
        if spec.large:
            self.pool = nn.MaxPool2d(3, 2, padding=1)
        for number, plans in enumerate(spec.plans(), 1):
            self.add_module(f"stage{number}", nn.Sequential(*[spec.kind(plan) for plan in plans]))
        after = spec.kind.expansion * spec.channels[-1]
        if spec.preactivation:
            self.final_norm = norm(after)
        self.classifier = nn.Linear(after, spec.classes)
        self._initialise()

    def stem(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if not self.preactivation:
            x = self.activation(self.norm(x))
        return self.pool(x) if self.spec.large else x

    def head(self, h: Tensor) -> Tensor:
        if self.preactivation:
            h = self.activation(self.final_norm(h))
        return self.classifier(h.mean((2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stage3(self.stage2(self.stage1(self.stem(x))))
        return self.head(self.stage4(h) if self.spec.large else h)

    def extra_repr(self) -> str:
        return "" if self.spec.initial == "he" else f"initial={self.spec.initial}"

    def _initialise(self) -> None:
        """Weights on shortcuts are drawn last, so that a twin without them gets the same."""
        self.initialise_classifier()
        draw(self.layers(nn.Conv2d), self.spec.initial, self.spec.activation)
        if self.spec.zero:
            self.zero_branches()


def blocks_per_stage(depth: int, block: str = "basic", shortcut_depth: int = 2) -> int:
    """How many blocks a stage of a network of `depth` layers has: the stem and the classifier are two of them."""
    if shortcut_depth < 1:
        raise InputError(f"ResNet: expected shortcut_depth of at least 1, got {shortcut_depth}")
    layers = STAGES * (shortcut_depth if block == "basic" else BLOCKS[block, False, False].layers)
    count, left = divmod(depth - 2, layers)
    if count < 1 or left:
        lower = max(count, 1) * layers + 2
        near = f"{lower} or {lower + layers}"
        raise InputError(f"ResNet: expected a depth of {layers} n + 2 of {block} blocks, such as {near}, got {depth}")
    return count
