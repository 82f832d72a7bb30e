"""The residual networks for small images, of 6 n + 2 layers (bottleneck: 9 n + 2), and their plain twins.

    stem      convolution 3 x 3, batch norm, ReLU
    3 stages  n blocks each; the first block of the second and third stage halves the image
    head      mean over the image, linear classifier

What a block computes is in `blocks/`. Without skips (`skips=False`) a block is its branch alone: the plain twin. With
shortcuts that have no weights both have the same weights, and one seed gives both the same initial values.

In a pre-activation network the norm and the activation of the stem stand before the mean instead, as `final_norm`.

K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2.
K. He, X. Zhang, S. Ren, J. Sun: Identity Mappings in Deep Residual Networks, ECCV 2016.
S. Xie, R. Girshick, P. Dollar, Z. Tu, K. He: Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.blocks import ACTIVATIONS, BLOCKS, SHORTCUTS, BlockPlan, equal_cost_width
from skipscope.models.network import BlockNetwork

STAGES = 3


class ResNet(BlockNetwork):
    """depth: 6 n + 2, or 9 n + 2 of bottlenecks. channels: of the three stages; a bottleneck lets out 4 times as many.

    skips: False for the plain twin. cardinality: the number of paths (ResNeXt), each `group_width` channels wide in
    the first stage and wider in the others as `channels` grow; None gives bottlenecks about the weights that they have
    with one path, and basic blocks paths as wide as the stage. activation: "linear" for none. stochastic_depth: the
    probability with which the last block's branch is left out in training; it falls linearly to the first block.
    shortcut_depth: convolutions under one shortcut, of basic pre-activation blocks with one path; networks of one
    depth that differ in it alone have the same number of weights (unless their shortcuts have some).
    """

    def __init__(
        self,
        depth: int = 20,
        *,
        channels: Sequence[int] = (16, 32, 64),
        block: str = "basic",
        preactivation: bool = False,
        shortcut: str = "pad",
        skips: bool = True,
        cardinality: int = 1,
        group_width: int | None = None,
        batch_norm: bool = True,
        activation: str = "relu",
        input_channels: int = 3,
        classes: int = 10,
        stochastic_depth: float = 0.0,
        shortcut_depth: int = 2,
    ) -> None:
        super().__init__()
        _one_of("block", block, sorted({name for name, _, _ in BLOCKS}))
        _one_of("shortcut", shortcut, SHORTCUTS)
        _one_of("activation", activation, ACTIVATIONS)
        for name, value in (("input_channels", input_channels), ("classes", classes), ("cardinality", cardinality)):
            _at_least_one(name, value)
        if len(channels) != STAGES or list(channels) != sorted(channels) or channels[0] < 1:
            raise InputError(f"ResNet: expected the channels of three stages, none below the last, got {channels}")
        if group_width is not None:
            _at_least_one("group_width", group_width)
            if cardinality == 1:
                raise InputError(f"ResNet: group_width={group_width} expected a cardinality above 1; give both or none")
        if not 0 <= stochastic_depth < 1:
            raise InputError(f"ResNet: expected stochastic_depth from 0 to below 1, got {stochastic_depth}")
        if stochastic_depth and not skips:
            raise InputError("ResNet: stochastic_depth expected skips=True; without a skip nothing is left of a block")
        if shortcut_depth != 2 and (block != "basic" or not preactivation or cardinality > 1):
            raise InputError(
                f"ResNet: shortcut_depth={shortcut_depth} expected basic pre-activation blocks with one path; "
                "give preactivation=True"
            )
        count = blocks_per_stage(depth, block, shortcut_depth)
        kind = BLOCKS[block, preactivation, cardinality > 1]
        if cardinality > 1 and group_width is None:
            group_width = channels[0] if block == "basic" else equal_cost_width(channels[0], cardinality)

        self.depth, self.skips, self.preactivation = depth, skips, preactivation
        self.activation = ACTIVATIONS[activation]
        self._gain = activation  # by the name that torch gives it
        self.conv = nn.Conv2d(input_channels, channels[0], 3, padding=1, bias=False)
        norm = BlockPlan(channels[0], channels[0], batch_norm=batch_norm).norm
        if not preactivation:
            self.norm = norm(channels[0])
        stages = []
        before = channels[0]
        for stage, width in enumerate(channels):
            blocks = []
            for index in range(count):
                plan = BlockPlan(
                    before=before,
                    width=width,
                    stride=2 if stage > 0 and index == 0 else 1,
                    shortcut=shortcut if skips else None,
                    batch_norm=batch_norm,
                    activation=activation,
                    cardinality=cardinality,
                    group_width=max(1, (group_width or 0) * width // channels[0]),
                    convolutions=shortcut_depth,
                    survival=1 - stochastic_depth * (stage * count + index + 1) / (STAGES * count),
                )
                blocks.append(kind(plan))
                before = kind.expansion * width
            stages.append(nn.Sequential(*blocks))
        self.stage1, self.stage2, self.stage3 = stages
        if preactivation:
            self.final_norm = norm(before)
        self.classifier = nn.Linear(before, classes)
        self._initialise()

    def stem(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x if self.preactivation else self.activation(self.norm(x))

    def head(self, h: Tensor) -> Tensor:
        if self.preactivation:
            h = self.activation(self.final_norm(h))
        return self.classifier(h.mean((2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stage3(self.stage2(self.stage1(self.stem(x)))))

    def _initialise(self) -> None:
        """He et al.'s normal weights; those on shortcuts are drawn last, so that a twin without them gets the same.

        The fan-out of a grouped convolution counts all groups, as in Xie et al.'s code and in torchvision.
        """
        nn.init.normal_(self.classifier.weight, std=self.classifier.in_features**-0.5)
        nn.init.zeros_(self.classifier.bias)
        for convolution in self.layers(nn.Conv2d):
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity=self._gain)  # type: ignore[arg-type]


def blocks_per_stage(depth: int, block: str = "basic", shortcut_depth: int = 2) -> int:
    """How many blocks a stage of a network of `depth` layers has: the stem and the classifier are two of them."""
    _at_least_one("shortcut_depth", shortcut_depth)
    layers = STAGES * (shortcut_depth if block == "basic" else BLOCKS[block, False, False].layers)
    count, left = divmod(depth - 2, layers)
    if count < 1 or left:
        lower = max(count, 1) * layers + 2
        near = f"{lower} or {lower + layers}"
        raise InputError(f"ResNet: expected a depth of {layers} n + 2 of {block} blocks, such as {near}, got {depth}")
    return count


def _one_of(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise InputError(f"ResNet: expected {name} to be one of {', '.join(known)}, got {value!r}")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"ResNet: expected {name} of at least 1, got {value}")
