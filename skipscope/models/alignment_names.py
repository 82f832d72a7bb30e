"""Names of the networks of residual alignment: TYPE - INPUT [- OPTION ...], as in `type1-mnist-w64-b16`.

types     type1 (fully connected), type2 (convolutional, one resolution), type3 (convolutional, halved once)
inputs    cifar or cifar10, cifar100, mnist, digits, imagenette, imagenette32: the image's shape, the number of classes
options   wK             states, or channels, of width K (64)
          bK             K blocks (16)
          cK             K classes in place of the input's
          pK             a stem of stride K: 1, 2, 4, ... (type2; 2)
          preactivation  norm and activation before matrices and convolutions
          noskips        blocks without their skips
          dropK          stochastic depth: a sample goes around a branch in K % of the training steps
          decay          K % at the last block, falling linearly to the first
"""

from __future__ import annotations

import re
from typing import Any

from skipscope.errors import InputError
from skipscope.models.alignment_specification import TYPES, AlignmentSpec
from skipscope.models.grammar import LARGEST, refuse, said_once, short, whole

WORDS: dict[str, dict[str, Any]] = {
    "preactivation": {"preactivation": True},
    "noskips": {"skips": False},
    "decay": {"decay": True},
}
NUMBERS = {"w": "width", "b": "blocks", "c": "classes", "p": "patch", "drop": "stochastic_depth"}
MOST_PERCENT = 99
NAMES = tuple(f"type{kind}" for kind in TYPES)
GRAMMAR = "TYPE - INPUT [- OPTION ...], for example type1-mnist-w64-b16 or type2-cifar-w16-preactivation"

Inputs = dict[str, tuple[tuple[int, int, int], int]]  # the shape of an image, the number of classes


def spec_of(name: str, inputs: Inputs) -> AlignmentSpec:
    """The network that a name stands for. inputs: those that all our names know."""
    first, *rest = name.split("-")
    if first not in NAMES:
        refuse(name, f"no type '{short(first)}'", "types", first, NAMES, GRAMMAR)
    known = _inputs(inputs)
    if not rest or rest[0] not in known:
        refuse(name, f"no input '{rest[0]}'" if rest else "no input", "inputs", rest[0] if rest else "", known, GRAMMAR)
    shape, classes = known[rest[0]]
    options = {"classes": classes} | said_once(name, rest[1:], lambda option: _option(name, first, option))
    try:
        return AlignmentSpec(NAMES.index(first) + 1, input_shape=shape, **options)
    except InputError as error:
        raise InputError(f"skipscope:{name}: {error}") from error


def fitting(name: str, inputs: Inputs, shape: tuple[int, ...], classes: int) -> str:
    """The same network for other images; empty where no input has their shape."""
    first, _, *rest = name.split("-")
    found = [(known[1] != classes, key) for key, known in _inputs(inputs).items() if known[0] == shape]
    if not found:
        return ""
    others, key = min(found, key=lambda candidate: candidate[0])
    kept = [option for option in rest if not re.fullmatch(r"c\d+", option)]
    return "-".join([first, key, *kept, *([f"c{classes}"] if others else [])])


def _inputs(inputs: Inputs) -> Inputs:
    """With the names that data sets have and networks that take images of any size do not need."""
    return inputs | {"cifar10": inputs["cifar"], "imagenette32": ((3, 32, 32), inputs["imagenette"][1])}


def _option(name: str, kind: str, option: str) -> dict[str, Any]:
    if option in WORDS:
        return WORDS[option]
    number = re.fullmatch(r"([a-z]+)(\d+)", option)
    if number is None or number[1] not in NUMBERS:
        known = [*WORDS, *(f"{letters}K" for letters in NUMBERS)]
        refuse(name, f"no option '{short(option)}'", "options", option, known, GRAMMAR)
    key, most = NUMBERS[number[1]], MOST_PERCENT if number[1] == "drop" else LARGEST
    value = whole(name, f"'{short(option)}'", number[2], most)
    if key == "patch" and kind != "type2":
        raise InputError(f"skipscope:{name}: {kind} has a stem of its own, so '{option}' has no meaning; use type2")
    return {key: value / 100 if number[1] == "drop" else value}
