"""Names of the networks of residual alignment: TYPE - INPUT [- OPTION ...], as in `type1-mnist-w64-b16`.

types     type1 (fully connected), type2 (convolutional, one resolution), type3 (convolutional, halved once)
inputs    cifar or cifar10, cifar100, mnist, digits, imagenette, imagenette32: the image's shape, the number of classes
options   wK             states, or channels, of width K (64)
          bK             K blocks (16)
          cK             K classes in place of the input's
          pK             a stem of stride K: 1, 2, 4, ... (type2; 2)
          preactivation  norm and activation before matrices and convolutions
          noskips        blocks without their skips
          skipK          skips of K % of their strength, below 100
          dropK          stochastic depth: a sample goes around a branch in K % of the training steps
          decay          K % at the last block, falling linearly to the first

A name stands for an `AlignmentSpec`: a network but for its weights, which `network.py` builds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from skipscope.constraints import Constrained, Expectation, above, at_least, at_most, below
from skipscope.errors import InputError
from skipscope.models.names import INPUTS, LARGEST, options_given_once, refuse, short, whole

if TYPE_CHECKING:
    from skipscope.papers.a.networks.network import AlignmentNet

TYPES = {1: "fully connected", 2: "convolutional, one resolution", 3: "convolutional, halved once"}
PATCHES = (1, 2, 4, 8, 16, 32)
PADDED = 28  # images of this size are treated as if they had 4 places more

WORDS: dict[str, dict[str, Any]] = {
    "preactivation": {"preactivation": True},
    "noskips": {"skips": False},
    "decay": {"decay": True},
}
NUMBERS = {"w": "width", "b": "blocks", "c": "classes", "p": "patch", "drop": "stochastic_depth", "skip": "skip_factor"}
PERCENT = ("drop", "skip")
MOST_PERCENT = 99
NAMES = tuple(f"type{kind}" for kind in TYPES)
GRAMMAR = "TYPE - INPUT [- OPTION ...], for example type1-mnist-w64-b16 or type2-cifar-w16-preactivation"

# The shape of an image and the number of classes; with the names that data sets have and networks that take images of
# any size do not need.
KNOWN = INPUTS | {"cifar10": INPUTS["cifar"], "imagenette32": ((3, 32, 32), INPUTS["imagenette"][1])}


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
    skip_factor: Annotated[float, above(0), at_most(1)] = 1.0  # of the identity around a block
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
            self.skip_factor == 1 or (self.skips and self.flat),
            "skip_factor: expected skips, of a fully connected network (type 1)",
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


class AlignmentNames:
    """The family of names, as `skipscope.models.names` describes it."""

    beginnings = NAMES

    def parse(self, name: str) -> dict[str, Any]:
        return asdict(spec_of(name))

    def build(self, name: str) -> AlignmentNet:
        from skipscope.papers.a.networks.network import AlignmentNet

        return AlignmentNet(spec_of(name))

    def fitting(self, name: str, shape: tuple[int, ...], classes: int) -> str:
        first, _, *rest = name.split("-")
        found = [(known[1] != classes, key) for key, known in KNOWN.items() if known[0] == shape]
        if not found:
            return ""
        others, key = min(found, key=lambda candidate: candidate[0])
        kept = [option for option in rest if not re.fullmatch(r"c\d+", option)]
        return "-".join([first, key, *kept, *([f"c{classes}"] if others else [])])

    def any_size(self, name: str) -> bool:
        return False


FAMILIES = (AlignmentNames(),)


def spec_of(name: str) -> AlignmentSpec:
    """The network that a name stands for."""
    first, *rest = name.split("-")
    if first not in NAMES:
        refuse(name, f"no type '{short(first)}'", "types", first, NAMES, GRAMMAR)
    if not rest or rest[0] not in KNOWN:
        refuse(name, f"no input '{rest[0]}'" if rest else "no input", "inputs", rest[0] if rest else "", KNOWN, GRAMMAR)
    shape, classes = KNOWN[rest[0]]
    options = {"classes": classes} | options_given_once(name, rest[1:], lambda option: _option(name, first, option))
    try:
        return AlignmentSpec(NAMES.index(first) + 1, input_shape=shape, **options)
    except InputError as error:
        raise InputError(f"skipscope:{name}: {error}") from error


def _option(name: str, kind: str, option: str) -> dict[str, Any]:
    if option in WORDS:
        return WORDS[option]
    number = re.fullmatch(r"([a-z]+)(\d+)", option)
    if number is None or number[1] not in NUMBERS:
        known = [*WORDS, *(f"{letters}K" for letters in NUMBERS)]
        refuse(name, f"no option '{short(option)}'", "options", option, known, GRAMMAR)
    key, most = NUMBERS[number[1]], MOST_PERCENT if number[1] in PERCENT else LARGEST
    value = whole(name, f"'{short(option)}'", number[2], most)
    if key == "patch" and kind != "type2":
        raise InputError(f"skipscope:{name}: {kind} has a stem of its own, so '{option}' has no meaning; use type2")
    return {key: value / 100 if number[1] in PERCENT else value}
