"""Names of our own networks: FAMILY DEPTH - INPUT [- OPTION ...], as in `resnet56-cifar` or `plainnet110-mnist-nonorm`.

families  resnet, plainnet (no skips), resnext (8 paths); with pre- before: norm and activation before convolutions
inputs    cifar, cifar100, mnist, digits, imagenette: they decide the image's shape and the number of classes
options   projection  projections where the shape changes, in place of zero-padding
          bottleneck  blocks of three convolutions; the depth is then 9 n + 2
          linear      no activation
          nonorm      no batch norm
          wK, nK      channels times K, divided by K
          cK          K paths (resnext)
          dK          paths of K channels in the first stage (resnext)
          sK          K convolutions under each shortcut (preresnet); the depth is then 3 K n + 2
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from torch import nn

from skipscope.errors import InputError
from skipscope.models.recipe import Batch, Recipe, Wish, random_images, refuse_text
from skipscope.models.resnet import ResNet, blocks_per_stage

CHANNELS = (16, 32, 64)
CARDINALITY = 8
DEEPEST = 20_000  # layers: beyond this, building alone takes minutes
LARGEST = 10_000  # of a number in an option
FAMILIES: dict[str, dict[str, Any]] = {
    "resnet": {},
    "preresnet": {"preactivation": True},
    "plainnet": {"skips": False},
    "preplainnet": {"skips": False, "preactivation": True},
    "resnext": {"cardinality": CARDINALITY},
    "preresnext": {"cardinality": CARDINALITY, "preactivation": True},
}
INPUTS: dict[str, tuple[tuple[int, int, int], int]] = {  # the shape of an image, the number of classes
    "cifar": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "mnist": ((1, 28, 28), 10),
    "digits": ((1, 8, 8), 10),
    "imagenette": ((3, 64, 64), 10),
}
WORDS: dict[str, dict[str, Any]] = {
    "projection": {"shortcut": "projection"},
    "bottleneck": {"block": "bottleneck"},
    "linear": {"activation": "linear"},
    "nonorm": {"batch_norm": False},
}
NUMBERS = {"w": "channels", "n": "channels", "c": "cardinality", "d": "group_width", "s": "shortcut_depth"}
GRAMMAR = "FAMILY DEPTH - INPUT [- OPTION ...], for example resnet56-cifar or preresnet164-cifar-bottleneck"


def parse(name: str) -> dict[str, Any]:
    """The options of `ResNet` that a name stands for, and with them `input_shape`: channels, height, width."""
    first, *rest = name.split("-")
    family, depth = re.fullmatch(r"(.*?)(\d*)", first).groups()  # type: ignore[union-attr]
    if family not in FAMILIES:
        _refuse(name, f"no family '{family}'", "families", family, FAMILIES)
    if not depth:
        raise InputError(f"skipscope:{name}: no depth after '{family}'; a name is {GRAMMAR}")
    if not rest or rest[0] not in INPUTS:
        _refuse(name, f"no input '{rest[0]}'" if rest else "no input", "inputs", rest[0] if rest else "", INPUTS)
    shape, classes = INPUTS[rest[0]]
    layers = _whole(name, f"depth '{_short(depth)}'", depth, DEEPEST)
    options = {**FAMILIES[family], "depth": layers, "input_channels": shape[0], "classes": classes}
    said: dict[str, Any] = {}
    for option in rest[1:]:
        meant = _option(name, family, option)
        if meant.keys() & said.keys():
            raise InputError(f"skipscope:{name}: '{option}' says {', '.join(meant)} a second time; leave one out")
        said |= meant
    options |= said
    blocks_per_stage(options["depth"], options.get("block", "basic"), options.get("shortcut_depth", 2))
    return {**options, "input_shape": shape}


def build(name: str) -> ResNet:
    """The network that a name stands for, with new weights."""
    options = parse(name)
    del options["input_shape"]
    return ResNet(**options)


def skipscope_recipe(name: str) -> Recipe:
    """MODEL skipscope:NAME."""
    options = parse(name)

    def make() -> nn.Module:
        return build(name).eval()

    def example(model: nn.Module, wish: Wish) -> Batch:
        refuse_text(wish, f"skipscope:{name}")
        return random_images(wish.shape or options["input_shape"], wish.samples)

    return Recipe(f"skipscope {name}", make, example, skeleton=make)


def _option(name: str, family: str, option: str) -> dict[str, Any]:
    number = re.fullmatch(r"([a-z])(\d+)", option)
    if option in WORDS:
        if option == "projection" and not FAMILIES[family].get("skips", True):
            raise InputError(f"skipscope:{name}: {family} has no shortcuts to project; leave 'projection' out")
        return WORDS[option]
    if number is None or number[1] not in NUMBERS:
        known = [*WORDS, *(f"{letter}K" for letter in NUMBERS)]
        _refuse(name, f"no option '{option}'", "options", option, known)
    key, value = NUMBERS[number[1]], _whole(name, f"'{_short(option)}'", number[2], LARGEST)
    if option.startswith("w"):
        return {key: tuple(value * width for width in CHANNELS)}
    if option.startswith("n"):
        if CHANNELS[0] % value:
            raise InputError(
                f"skipscope:{name}: '{option}' does not divide the {CHANNELS[0]} channels of the first stage"
            )
        return {key: tuple(width // value for width in CHANNELS)}
    if option.startswith("s"):
        if family not in ("preresnet", "preplainnet"):
            raise InputError(f"skipscope:{name}: {family} has blocks of a fixed length; '{option}' is for preresnet")
        return {key: value}
    if "cardinality" not in FAMILIES[family]:
        raise InputError(f"skipscope:{name}: {family} has one path, so '{option}' has no meaning; use resnext")
    return {key: value}


def _whole(name: str, what: str, digits: str, most: int) -> int:
    """Python itself refuses to read thousands of digits."""
    digits = digits.lstrip("0") or "0"
    value = int(digits) if len(digits) <= len(str(most)) else most + 1
    if not 1 <= value <= most:
        raise InputError(f"skipscope:{_short(name)}: {what} expected a number of at least 1 and at most {most}")
    return value


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}..."


def _refuse(name: str, what: str, kind: str, got: str, known: Iterable[str]) -> NoReturn:
    known = list(known)
    close = difflib.get_close_matches(got, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"skipscope:{_short(name)}: {what}{hint} ({kind}: {', '.join(known)}; a name is {GRAMMAR})")
