"""The three types of residual networks in which residual alignment was found, and their twins without skips.

    type 1  fully connected: the image as a vector, a matrix to `width`, L blocks, classifier
    type 2  convolutional, one resolution: a convolution of stride p, L blocks, mean over 4 x 4 places, classifier
    type 3  convolutional, halved once: a convolution of stride 2, floor(L / 2) blocks, one that halves the image and
            doubles the channels, the remaining ones, mean over 2 x 2 places, classifier

A block is relu(h + norm W2 relu norm W1 h), without a skip relu(norm W2 relu norm W1 h); no matrix and no convolution
but the classifier has a bias. The block that halves counts among the L; its skip is a 1 x 1 convolution with a norm.
16 blocks are "ResNet34": with the stem and the classifier, 34 layers.

The stem of stride p = 1, 2, 4, ... has a kernel of 2 p + 1 places and a padding of p, of p + 2 for images of 28 x 28,
which then give the maps that images of 32 x 32 give: 32 / p places per side.

With `preactivation` a block is h + W2 relu norm W1 relu norm h, the stem is the bare matrix or convolution, and a norm
and an activation (`final_norm`) stand before the head, as in `ResNet`.

Weights, also the classifier's, are He et al.'s normal ones of the fan-out; its bias begins at zero.

J. Li, V. Papyan: Residual Alignment: Uncovering the Mechanisms of Residual Networks, NeurIPS 2023. The sizes are those
of a copy of the authors' notebook; a network of four stages in place of type 3 is not ruled out by what they wrote.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.errors import InputError
from skipscope.models.blocks import Basic, Block, BlockPlan, Connected, Preactivation, PreactivationConnected
from skipscope.models.network import BlockNetwork
from skipscope.papers.a.networks.names import AlignmentSpec

POOLED_SIDE = {2: 4, 3: 2}  # by type: places per side that the head takes the mean over

# (type 1, preactivation)
BLOCKS: dict[tuple[bool, bool], type[Block]] = {
    (True, False): Connected,
    (True, True): PreactivationConnected,
    (False, False): Basic,
    (False, True): Preactivation,
}


class AlignmentNet(BlockNetwork):
    """The network of a spec. Its blocks are in `stage1`, those of type 3 from the one that halves on in `stage2`."""

    def __init__(self, spec: AlignmentSpec) -> None:
        super().__init__()
        self.spec, self.skips, self.preactivation = spec, spec.skips, spec.preactivation
        channels, height, width = spec.input_shape
        plans = [_plan(spec, number) for number in range(spec.blocks)]
        self.first: nn.Module
        if spec.flat:
            self.first = nn.Linear(channels * height * width, spec.width, bias=False)
        else:
            self.first = nn.Conv2d(
                channels, spec.width, 2 * spec.patch + 1, spec.patch, padding=spec.padding, bias=False
            )
        if not spec.preactivation:
            self.norm = plans[0].norm(spec.width)
        kind = BLOCKS[spec.flat, spec.preactivation]
        blocks = [kind(plan) for plan in plans]
        self.stage1 = nn.Sequential(*blocks[: spec.halved_at])
        if spec.halved_at is not None:
            self.stage2 = nn.Sequential(*blocks[spec.halved_at :])
        if spec.preactivation:
            self.final_norm = plans[-1].norm(plans[-1].width)
        self.pool, places = _pooling(spec)
        self.classifier = nn.Linear(plans[-1].width * places, spec.classes)
        self._initialise()

    def stem(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1) if self.spec.flat else x)
        return h if self.preactivation else F.relu(self.norm(h))

    def head(self, h: Tensor) -> Tensor:
        if self.preactivation:
            h = F.relu(self.final_norm(h))
        if not self.spec.flat:
            h = F.avg_pool2d(h, self.pool).flatten(1)
        return self.classifier(h)

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.spec.input_shape:
            raise InputError(
                f"AlignmentNet: expected images of {' x '.join(map(str, self.spec.input_shape))}, "
                f"got a tensor of {' x '.join(map(str, x.shape))}"
            )
        h = self.stage1(self.stem(x))
        return self.head(h if self.spec.halved_at is None else self.stage2(h))

    def _initialise(self) -> None:
        for layer in self.layers(nn.Linear, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")  # type: ignore[arg-type]
        nn.init.zeros_(self.classifier.bias)


def _pooling(spec: AlignmentSpec) -> tuple[int, int]:
    """The side of the window of the head's mean, and the number of windows; small maps are one window."""
    if spec.flat:
        return 1, 1
    height, width = spec.maps if spec.kind == 2 else ((size + 1) // 2 for size in spec.maps)
    window = min(POOLED_SIDE[spec.kind], height, width)
    return window, (height // window) * (width // window)


def _plan(spec: AlignmentSpec, number: int) -> BlockPlan:
    """Of one block, counted from 0."""
    halved = spec.halved_at
    before = 2 * spec.width if halved is not None and number > halved else spec.width
    share = (number + 1) / spec.blocks if spec.decay else 1.0
    return BlockPlan(
        before=before,
        width=2 * before if number == halved else before,
        stride=2 if number == halved else 1,
        shortcut="projection" if spec.skips else None,
        survival=1 - spec.stochastic_depth * share,
        per_sample=True,
        skip_factor=spec.skip_factor,
        flat=spec.flat,
    )
