"""What determines our networks of blocks, apart from their weights; see `resnet.py` and `connected.py`.

Nothing here imports torch: the command line reads names of networks, and refuses wrong ones, before it loads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from skipscope.constraints import Constrained, Expectation, above, at_least, below, finite, one_of
from skipscope.errors import InputError

ACTIVATIONS = ("relu", "linear", "tanh")
SHORTCUTS = ("pad", "projection")
PARAMETRISATIONS = ("dirac", "additive")
INITIAL = ("he", "xavier", "orthogonal", "looks_linear", "small")
LAYERS = {"basic": 2, "bottleneck": 3}  # with weights, on the branch of a block
STAGES = 3
LARGE_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # blocks of the stages, by depth


@dataclass(frozen=True, kw_only=True)
class BlockSpec(Constrained):
    """skips: False for the plain twin. cardinality: the number of paths (ResNeXt), each `group_width` wide.

    scale: of every branch, before it is added to its shortcut. initial: what the weights of all layers but the
    classifier begin as. zero: what stands last on every branch begins at 0 (the scale of its norm; its weight, where no
    norm comes last), so that a block begins as its shortcut. parametrisation: "dirac" or "additive" for layers that
    carry an identity in their weights, in place of skips.
    """

    preactivation: bool = False
    skips: bool = True
    cardinality: Annotated[int, at_least(1)] = 1
    group_width: Annotated[int | None, at_least(1)] = None
    batch_norm: bool = True
    activation: Annotated[str, one_of(*ACTIVATIONS)] = "relu"  # "linear" for none
    classes: Annotated[int, at_least(1)] = 10
    scale: Annotated[float, above(0), finite] = 1.0
    initial: Annotated[str, one_of(*INITIAL)] = "he"
    zero: bool = False
    parametrisation: Annotated[str | None, one_of(*PARAMETRISATIONS)] = None

    def expectations(self) -> Iterator[Expectation]:
        yield (
            self.group_width is None or self.cardinality > 1,
            f"group_width={self.group_width} expected a cardinality above 1; give both or none",
        )
        for name, given in (("scale", self.scale != 1), ("zero", self.zero)):
            yield (
                self.skips or not given,
                f"{name}={getattr(self, name)} expected skips=True; a block without a skip is its branch alone",
            )
        without_skip = not (self.skips or self.preactivation or self.cardinality > 1)
        yield (
            self.parametrisation is None or without_skip,
            f"parametrisation={self.parametrisation!r} expected skips=False, preactivation=False and one path; it "
            "stands in place of a skip",
        )


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

    named = "ResNet"

    depth: int = 20
    channels: Sequence[int] = (16, 32, 64)
    block: Annotated[str, one_of(*LAYERS)] = "basic"
    shortcut: Annotated[str, one_of(*SHORTCUTS)] = "pad"
    input_channels: Annotated[int, at_least(1)] = 3
    stochastic_depth: Annotated[float, at_least(0), below(1)] = 0.0
    shortcut_depth: Annotated[int, at_least(1)] = 2
    large: bool = False

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        channels, stages = list(self.channels), 4 if self.large else STAGES
        yield (
            len(channels) == stages and channels == sorted(channels) and channels[0] >= 1,
            f"expected the channels of {stages} stages, none fewer than those of the stage before, got {self.channels}",
        )
        yield (
            not self.large or (self.block == "bottleneck" and self.depth in LARGE_BLOCKS),
            "expected a network for large images to have bottleneck blocks and a depth of "
            f"{', '.join(map(str, LARGE_BLOCKS))}, got {self.block} blocks and {self.depth}",
        )
        if not self.large:
            blocks_per_stage(self.depth, self.block, self.shortcut_depth)  # refuses a wrong depth
        yield (
            not self.stochastic_depth or self.skips,
            "stochastic_depth expected skips=True; without a skip nothing is left of a block",
        )
        yield (
            self.initial != "looks_linear",
            "initial='looks_linear' expected a fully connected network; convolutions have no such weights",
        )
        any_length = self.block == "basic" and self.preactivation and self.cardinality == 1
        yield (
            self.shortcut_depth == 2 or any_length,
            f"shortcut_depth={self.shortcut_depth} expected basic pre-activation blocks with one path; give "
            "preactivation=True",
        )
        yield (
            self.parametrisation is None or self.block == "basic",
            f"parametrisation={self.parametrisation!r} expected basic blocks",
        )

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many, by stage."""
        if self.large:
            return LARGE_BLOCKS[self.depth]
        return (blocks_per_stage(self.depth, self.block, self.shortcut_depth),) * STAGES

    @property
    def first_group_width(self) -> int:
        """Of the first stage; 0 with one path."""
        if self.cardinality == 1 or self.group_width is not None:
            return self.group_width or 0
        return self.channels[0] if self.block == "basic" else equal_cost_width(self.channels[0], self.cardinality)


def blocks_per_stage(depth: int, block: str = "basic", shortcut_depth: int = 2) -> int:
    """How many blocks a stage of a network of `depth` layers has: the stem and the classifier are two of them.

    A depth that no whole number of blocks gives is refused."""
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


@dataclass(frozen=True)
class ConnectedSpec(BlockSpec):
    """Everything about a fully connected network except its weights. depth: 2 n + 2."""

    named = "ConnectedNet"

    depth: int = 20
    width: Annotated[int, at_least(1)] = 64
    input_shape: tuple[int, int, int] = (1, 28, 28)  # channels, height, width

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        yield (
            len(self.input_shape) == 3 and min(self.input_shape) >= 1,
            f"expected images of channels, height, width, got {self.input_shape}",
        )
        mirrored = self.activation == "relu" and self.width % 2 == 0 and (self.group_width or 2) % 2 == 0
        yield (
            self.initial != "looks_linear" or mirrored,
            "initial='looks_linear' expected ReLUs and states and paths of an even width: half of the units mirror the "
            "others",
        )
        yield (
            self.depth >= 4 and self.depth % 2 == 0,
            f"expected a depth of 2 n + 2, such as 20 or 60, got {self.depth}",
        )

    @property
    def blocks(self) -> int:
        return (self.depth - 2) // 2
