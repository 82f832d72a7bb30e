"""What a network of residual alignment is told; see `alignment.py`."""

from __future__ import annotations

from dataclasses import dataclass

from skipscope.errors import InputError

TYPES = {1: "fully connected", 2: "convolutional, one resolution", 3: "convolutional, halved once"}
PATCHES = (1, 2, 4, 8, 16, 32)
PADDED = 28  # images of this size are treated as if they had 4 places more


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
