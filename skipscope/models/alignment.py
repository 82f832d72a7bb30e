"""The three types of residual networks in which residual alignment was found, and their twins without skips.

    type 1  fully connected: the image as a vector, a matrix to `width`, L blocks, classifier
    type 2  convolutional, one resolution: a convolution of stride p, L blocks, mean over 4 x 4 places, classifier
    type 3  convolutional, halved once: a convolution of stride 2, floor(L / 2) blocks, one that halves the image and
            doubles the channels, the remaining ones, mean over 2 x 2 places, classifier

A block is relu(h + norm W2 relu norm W1 h), without a skip relu(norm W2 relu norm W1 h); no matrix and no convolution
but the classifier has a bias. The block that halves counts among the L; its skip is a 1 x 1 convolution with a norm.
16 blocks are "ResNet34": with the stem and the classifier, 34 layers.

The stem of stride p = 1, 2, 4, ... has a kernel of 2 p + 1 places and a padding of p, of p + 2 for images of 28 x 28,
which then give the maps that images of 32 x 32 give: 32 / p places a side.

With `preactivation` a block is h + W2 relu norm W1 relu norm h, the stem is the bare matrix or convolution, and a norm
and an activation (`final_norm`) stand before the head, as in `ResNet`.

Weights, also the classifier's, are He et al.'s normal ones of the fan-out; its bias begins at zero.

J. Li, V. Papyan: Residual Alignment: Uncovering the Mechanisms of Residual Networks, NeurIPS 2023. The sizes are those
of a copy of the authors' notebook; a network of four stages in place of type 3 is not ruled out by what they wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.errors import InputError
from skipscope.models.blocks import Basic, Block, BlockPlan, Connected, Preactivation, PreactivationConnected
from skipscope.models.network import BlockNetwork

TYPES = {1: "fully connected", 2: "convolutional, one resolution", 3: "convolutional, halved once"}
PATCHES = (1, 2, 4, 8, 16, 32)
PADDED = 28  # images of this size are treated as if they had 4 places more
POOL = {2: 4, 3: 2}  # places a side that the head takes the mean over

# (type 1, preactivation)
BLOCKS: dict[tuple[bool, bool], type[Block]] = {
    (True, False): Connected,
    (True, True): PreactivationConnected,
    (False, False): Basic,
    (False, True): Preactivation,
}


@dataclass(frozen=True)
class AlignmentSpec:
    """A network of one of the three types, but for its weights."""

    kind: int  # 1, 2 or 3
    blocks: int = 16  # L
    width: int = 64  # of the states; type 2: their channels, type 3: those before the image is halved
    input_shape: tuple[int, int, int] = (1, 28, 28)  # channels, height, width
    classes: int = 10
    patch: int = 2  # p, of type 2
    preactivation: bool = False
    skips: bool = True
    stochastic_depth: float = 0.0  # the probability with which a sample goes around a branch in training
    decay: bool = False  # it is that of the last block, and falls linearly to the first

    def __post_init__(self) -> None:
        if self.kind not in TYPES:
            known = ", ".join(f"{kind} ({what})" for kind, what in TYPES.items())
            raise InputError(f"AlignmentNet: expected the type to be one of {known}, got {self.kind!r}")
        sizes = {"blocks": self.blocks, "width": self.width, "classes": self.classes}
        for name, value in sizes.items():
            if value < 1:
                raise InputError(f"AlignmentNet: expected {name} of at least 1, got {value}")
        if len(self.input_shape) != 3 or min(self.input_shape) < 1:
            raise InputError(f"AlignmentNet: expected images of channels, height, width, got {self.input_shape}")
        self._check_patch()
        self._check_stochastic_depth()

    def _check_patch(self) -> None:
        if self.kind != 2:
            if self.patch != 2:
                raise InputError(f"AlignmentNet: expected patches in type 2 alone, got patch={self.patch} in {self}")
        elif self.patch not in PATCHES or self.patch > min(self.input_shape[1:]):
            raise InputError(
                f"AlignmentNet: expected a patch of {', '.join(map(str, PATCHES))} places that the image has, "
                f"got {self.patch} for images of {' x '.join(map(str, self.input_shape))}"
            )

    def _check_stochastic_depth(self) -> None:
        if not 0 <= self.stochastic_depth < 1:
            raise InputError(f"AlignmentNet: expected stochastic_depth from 0 to below 1, got {self.stochastic_depth}")
        if self.stochastic_depth and not self.skips:
            raise InputError("AlignmentNet: stochastic_depth expected skips; without a skip nothing is left of a block")
        if self.decay and not self.stochastic_depth:
            raise InputError("AlignmentNet: decay expected a stochastic_depth above 0, which it lets fall")

    def __str__(self) -> str:
        return f"type {self.kind}"

    @property
    def flat(self) -> bool:
        """States are vectors."""
        return self.kind == 1

    @property
    def padding(self) -> int:
        """Of the stem."""
        return self.patch + (2 if self.input_shape[1:] == (PADDED, PADDED) else 0)

    @property
    def maps(self) -> tuple[int, int]:
        """Height and width of the states behind the stem of types 2 and 3."""
        height, width = (
            (size + 2 * self.padding - (2 * self.patch + 1)) // self.patch + 1 for size in self.input_shape[1:]
        )
        return height, width

    @property
    def halved_at(self) -> int | None:
        """The number of the block that halves the image, from 0."""
        return self.blocks // 2 if self.kind == 3 else None

    def plan(self, number: int) -> BlockPlan:
        """Of one block, counted from 0."""
        halved = self.halved_at
        before = 2 * self.width if halved is not None and number > halved else self.width
        share = (number + 1) / self.blocks if self.decay else 1.0
        return BlockPlan(
            before=before,
            width=2 * before if number == halved else before,
            stride=2 if number == halved else 1,
            shortcut="projection" if self.skips else None,
            survival=1 - self.stochastic_depth * share,
            per_sample=True,
            flat=self.flat,
        )


class AlignmentNet(BlockNetwork):
    """The network of a spec. Its blocks are in `stage1`, those of type 3 from the one that halves on in `stage2`."""

    def __init__(self, spec: AlignmentSpec) -> None:
        super().__init__()
        self.spec, self.skips, self.preactivation = spec, spec.skips, spec.preactivation
        channels, height, width = spec.input_shape
        plans = [spec.plan(number) for number in range(spec.blocks)]
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
    window = min(POOL[spec.kind], height, width)
    return window, (height // window) * (width // window)
