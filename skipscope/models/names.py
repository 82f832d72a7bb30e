"""Names of our own networks: FAMILY DEPTH - INPUT [- OPTION ...], as in `resnet56-cifar` or `plainnet110-mnist-nonorm`.

Those of residual alignment, as in `type1-mnist-w64-b16`, are in `alignment_names.py`.

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

import dataclasses
import re
from typing import Any

from torch import nn

from skipscope.errors import InputError
from skipscope.models import alignment_names
from skipscope.models.alignment import AlignmentNet
from skipscope.models.grammar import LARGEST, refuse, said_once, short, whole
from skipscope.models.recipe import Batch, Recipe, Wish, random_images, refuse_text
from skipscope.models.resnet import ResNet, blocks_per_stage

CHANNELS = (16, 32, 64)
CARDINALITY = 8
DEEPEST = 20_000  # layers: beyond this, building alone takes minutes
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
    """The options of `ResNet` that a name stands for, and with them `input_shape`: channels, height, width.

    For a name of residual alignment, the fields of its `AlignmentSpec`.
    """
    if _of_alignment(name):
        return dataclasses.asdict(alignment_names.spec_of(name, INPUTS))
    first, *rest = name.split("-")
    family, depth = re.fullmatch(r"(.*?)(\d*)", first).groups()  # type: ignore[union-attr]
    if family not in FAMILIES:
        refuse(name, f"no family '{family}'", "families", family, [*FAMILIES, *alignment_names.NAMES], GRAMMAR)
    if not depth:
        raise InputError(f"skipscope:{name}: no depth after '{family}'; a name is {GRAMMAR}")
    if not rest or rest[0] not in INPUTS:
        got = rest[0] if rest else ""
        refuse(name, f"no input '{got}'" if rest else "no input", "inputs", got, INPUTS, GRAMMAR)
    shape, classes = INPUTS[rest[0]]
    layers = whole(name, f"depth '{short(depth)}'", depth, DEEPEST)
    options = {**FAMILIES[family], "depth": layers, "input_channels": shape[0], "classes": classes}
    options |= said_once(name, rest[1:], lambda option: _option(name, family, option))
    blocks_per_stage(options["depth"], options.get("block", "basic"), options.get("shortcut_depth", 2))
    return {**options, "input_shape": shape}


def build(name: str) -> ResNet | Any:
    """The network that a name stands for, with new weights: a `ResNet`, or an `AlignmentNet`.

    Who writes a name knows which; the type does not ask for a check.
    """
    if _of_alignment(name):
        return AlignmentNet(alignment_names.spec_of(name, INPUTS))
    options = parse(name)
    del options["input_shape"]
    return ResNet(**options)


def fitting(name: str, shape: tuple[int, ...], classes: int) -> str:
    """The same network for other images; empty where no name stands for it."""
    if _of_alignment(name):
        return alignment_names.fitting(name, INPUTS, shape, classes)
    found = [key for key, known in INPUTS.items() if known == (shape, classes)]
    family, _, *rest = name.split("-")
    return "-".join([family, found[0], *rest]) if found else ""


def any_size(name: str) -> bool:
    """Whether the network takes images of other heights and widths than its input's."""
    return not _of_alignment(name)


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
        refuse(name, f"no option '{option}'", "options", option, known, GRAMMAR)
    key, value = NUMBERS[number[1]], whole(name, f"'{short(option)}'", number[2], LARGEST)
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


def _of_alignment(name: str) -> bool:
    return re.match(r"type\d*(-|$)", name) is not None
