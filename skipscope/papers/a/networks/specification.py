"""What a network of residual alignment is: its type, its sizes and its options; `network.py` builds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from skipscope.constraints import Constrained, Expectation, at_least, below

TYPES = {1: "fully connected", 2: "convolutional, one resolution", 3: "convolutional, halved once"}
PATCHES = (1, 2, 4, 8, 16, 32)
PADDED = 28  # images of this size are treated as if they had 4 places more


@dataclass(frozen=True)
class AlignmentSpec(Constrained):
    """A network of one of the three types, but for its weights."""

    kind: int  # 1, 2 or 3
    blocks: Annotated[int, at_least(1)] = 16  # L
    # Of the states; type 2: their channels, type 3: those before the image is halved.
    width: Annotated[int, at_least(1)] = 64
    input_shape: tuple[int, int, int] = (1, 28, 28)  # channels, height, width
    classes: Annotated[int, at_least(1)] = 10
    patch: int = 2  # p, of type 2
    preactivation: bool = False
    skips: bool = True
    # The probability with which a sample goes around a branch in training.
    stochastic_depth: Annotated[float, at_least(0), below(1)] = 0.0
    decay: bool = False  # it is that of the last block, and falls linearly to the first

    def expectations(self) -> Iterator[Expectation]:
        known = ", ".join(f"{kind} ({what})" for kind, what in TYPES.items())
        yield self.kind in TYPES, f"expected the type to be one of {known}, got {self.kind!r}"
        yield (
            len(self.input_shape) == 3 and min(self.input_shape) >= 1,
            f"expected images of channels, height, width, got {self.input_shape}",
        )
        yield self.kind == 2 or self.patch == 2, f"expected patches in type 2 alone, got patch={self.patch} in {self}"
        yield (
            self.kind != 2 or (self.patch in PATCHES and self.patch <= min(self.input_shape[1:])),
            f"expected a patch of {', '.join(map(str, PATCHES))} places that the image has, got {self.patch} for "
            f"images of {' x '.join(map(str, self.input_shape))}",
        )
        yield (
            self.skips or not self.stochastic_depth,
            "stochastic_depth: expected skips; without a skip nothing is left of a block",
        )
        yield (
            bool(self.stochastic_depth) or not self.decay,
            "decay: expected a stochastic_depth above 0, which it lets fall",
        )

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
