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

from typing import Any

from torch import Tensor, nn

from skipscope.models.blocks import ACTIVATIONS, BLOCKS, BlockPlan
from skipscope.models.network import BlockNetwork
from skipscope.models.specification import ResNetSpec


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
        kind = BLOCKS[spec.block, spec.preactivation, spec.cardinality > 1]
        first, size = spec.channels[0], 7 if spec.large else 3
        self.conv = nn.Conv2d(spec.input_channels, first, size, 2 if spec.large else 1, padding=size // 2, bias=False)
        norm = BlockPlan(first, first, batch_norm=spec.batch_norm).norm
        if not spec.preactivation:
            self.norm = norm(first)
        if spec.large:
            self.pool = nn.MaxPool2d(3, 2, padding=1)
        for number, plans in enumerate(_plans(spec, kind.expansion), 1):
            self.add_module(f"stage{number}", nn.Sequential(*[kind(plan) for plan in plans]))
        after = kind.expansion * spec.channels[-1]
        if spec.preactivation:
            self.final_norm = norm(after)
        self.classifier = nn.Linear(after, spec.classes)
        self.initialise(nn.Conv2d, spec)

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


def _plans(spec: ResNetSpec, expansion: int) -> list[list[BlockPlan]]:
    """Of all blocks, by stage. expansion: channels that leave a block, over the width of its stage."""
    stages: list[list[BlockPlan]] = []
    before, number, total = spec.channels[0], 0, sum(spec.blocks)
    for stage, (width, count) in enumerate(zip(spec.channels, spec.blocks, strict=True)):
        plans = []
        for index in range(count):
            number += 1
            plans.append(
                BlockPlan(
                    before=before,
                    width=width,
                    stride=2 if stage > 0 and index == 0 else 1,
                    shortcut=spec.shortcut if spec.skips else None,
                    batch_norm=spec.batch_norm,
                    activation=spec.activation,
                    cardinality=spec.cardinality,
                    group_width=max(1, spec.first_group_width * width // spec.channels[0]),
                    convolutions=spec.shortcut_depth,
                    survival=1 - spec.stochastic_depth * number / total,
                    scale=spec.scale,
                    parametrisation=spec.parametrisation,
                )
            )
            before = expansion * width
        stages.append(plans)
    return stages
