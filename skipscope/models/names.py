"""Names of our own networks: FAMILY DEPTH - INPUT [- OPTION ...], as in `resnet56-cifar` or `plainnet110-mnist-nonorm`.

Papers have names of their own (`NetworkNames`), such as `type1-mnist-w64-b16`: a name belongs to the family whose
beginning it has. Names are read, and wrong ones refused, before torch is loaded.

families  resnet, plainnet (no skips), resnext (8 paths); with pre- before: norm and activation before convolutions;
          diracnet (no skips, an identity in the weights)
inputs    cifar, cifar100, mnist, digits, imagenette: they decide the image's shape and the number of classes;
          imagenet, whose networks have the form `large`
options   projection  projections where the shape changes, in place of zero-padding
          bottleneck  blocks of three convolutions; the depth is then 9 n + 2
          linear      no activation
          tanh        tanh in place of ReLU
          nonorm      no batch norm
          connected   fully connected: two matrices per block, states of width 64; the depth is then 2 n + 2
          large       the form for large images: four stages of bottlenecks, with projections; the depth is then 50,
                      101 or 152, and resnext has 32 paths of 4 channels
          xavier, orthogonal, small (standard deviation 0.01)  initial weights, in place of He et al.'s
          lookslinear initial weights by which ReLUs act as an orthogonal map (connected)
          zero        the end of every branch begins at 0
          additive    W + diag(a) (diracnet), in place of the published form
          wK, nK      channels, or the width, times K, divided by K
          cK          K paths (resnext)
          dK          paths of K channels in the first stage (resnext)
          sK          K convolutions under each shortcut (preresnet); the depth is then 3 K n + 2
          scaleK      every branch times K %
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from skipscope.errors import InputError
from skipscope.models.specification import ConnectedSpec, ResNetSpec
from skipscope.registration import networks

if TYPE_CHECKING:
    from torch import nn

    from skipscope.models.resnet import ResNet

CHANNELS = (16, 32, 64)
LARGE_CHANNELS = (64, 128, 256, 512)
WIDTH = 64  # of fully connected networks
CARDINALITY = 8
LARGE_PATHS = {"cardinality": 32, "group_width": 4}
DEEPEST = 20_000  # layers: beyond this, building alone takes minutes
LARGEST = 10_000  # of a number in an option
FAMILIES: dict[str, dict[str, Any]] = {
    "resnet": {},
    "preresnet": {"preactivation": True},
    "plainnet": {"skips": False},
    "preplainnet": {"skips": False, "preactivation": True},
    "resnext": {"cardinality": CARDINALITY},
    "preresnext": {"cardinality": CARDINALITY, "preactivation": True},
    "diracnet": {"skips": False, "parametrisation": "dirac"},
}
INPUTS: dict[str, tuple[tuple[int, int, int], int]] = {  # the shape of an image, the number of classes
    "cifar": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "mnist": ((1, 28, 28), 10),
    "digits": ((1, 8, 8), 10),
    "imagenette": ((3, 64, 64), 10),
}
LARGE_INPUTS: dict[str, tuple[tuple[int, int, int], int]] = {"imagenet": ((3, 224, 224), 1000)}
WORDS: dict[str, dict[str, Any]] = {
    "projection": {"shortcut": "projection"},
    "bottleneck": {"block": "bottleneck"},
    "linear": {"activation": "linear"},
    "tanh": {"activation": "tanh"},
    "nonorm": {"batch_norm": False},
    "connected": {"connected": True},
    "large": {"large": True},
    "xavier": {"initial": "xavier"},
    "orthogonal": {"initial": "orthogonal"},
    "small": {"initial": "small"},
    "lookslinear": {"initial": "looks_linear"},
    "zero": {"zero": True},
    "additive": {"parametrisation": "additive"},
}
NUMBERS = {
    "w": "channels",
    "n": "channels",
    "c": "cardinality",
    "d": "group_width",
    "s": "shortcut_depth",
    "scale": "scale",
}
OF_CONVOLUTIONS = r"projection|bottleneck|large|s\d+"  # options that a fully connected network has no place for
GRAMMAR = "FAMILY DEPTH - INPUT [- OPTION ...], for example resnet56-cifar or preresnet164-cifar-bottleneck"


def parse(name: str) -> dict[str, Any]:
    """The options of `ResNet` that a name stands for, and with them `input_shape`: channels, height, width.

    For a fully connected network, the fields of its `ConnectedSpec`, and `connected`. For a network of a paper, what
    its family says.
    """
    if guest := _family(name):
        return guest.parse(name)
    first, *rest = name.split("-")
    family, depth = re.fullmatch(r"(.*?)(\d*)", first, re.DOTALL).groups()  # type: ignore[union-attr]
    inputs = INPUTS | LARGE_INPUTS
    if family not in FAMILIES:
        refuse(name, f"no family '{family}'", "families", family, [*FAMILIES, *beginnings()], GRAMMAR)
    if not depth:
        raise InputError(f"skipscope:{name}: no depth after '{family}'; a name is {GRAMMAR}")
    if not rest or rest[0] not in inputs:
        got = rest[0] if rest else ""
        refuse(name, f"no input '{got}'" if rest else "no input", "inputs", got, inputs, GRAMMAR)
    shape, classes = inputs[rest[0]]
    layers = whole(name, f"depth '{short(depth)}'", depth, DEEPEST)
    words = [*rest[1:], *(["large"] if rest[0] in LARGE_INPUTS and "large" not in rest else [])]
    options = {**FAMILIES[family], "depth": layers, "input_channels": shape[0], "classes": classes}
    given = options_given_once(name, words, lambda option: _option(name, family, option, words))
    options |= {**(_large(family) if "large" in given else {}), **given}
    if "connected" in given:
        del options["input_channels"]
    options["input_shape"] = shape
    _spec(options)
    return options


def build(name: str) -> ResNet | Any:
    """The network that a name stands for, with new weights: a `ResNet`, a `ConnectedNet` or a network of a paper.

    Who writes a name knows which; the type does not ask for a check.
    """
    # Names are read without torch, and only networks need it.
    from skipscope.models.connected import ConnectedNet
    from skipscope.models.resnet import ResNet

    if guest := _family(name):
        return guest.build(name)
    spec = _spec(parse(name))
    return ConnectedNet(spec) if isinstance(spec, ConnectedSpec) else ResNet(**vars(spec))


def fitting(name: str, shape: tuple[int, ...], classes: int) -> str:
    """The same network for other images; empty where no name stands for it."""
    if guest := _family(name):
        return guest.fitting(name, shape, classes)
    large = "large" in parse(name)
    known = INPUTS | LARGE_INPUTS if large else INPUTS
    found = [key for key, image in known.items() if image == (shape, classes)]
    if not found:
        return ""
    family, _, *rest = name.split("-")
    kept = [option for option in rest if option != "large"]
    return "-".join([family, found[0], *kept, *(["large"] if large and found[0] not in LARGE_INPUTS else [])])


def any_size(name: str) -> bool:
    """Whether the network takes images of other heights and widths than its input's."""
    guest = _family(name)
    return guest.any_size(name) if guest else "connected" not in parse(name)


def _option(name: str, family: str, option: str, words: Sequence[str]) -> dict[str, Any]:
    """words: all options of the name."""
    number = re.fullmatch(r"([a-z]+)(\d+)", option)
    if option not in WORDS and (number is None or number[1] not in NUMBERS):
        known = [*WORDS, *(f"{letters}K" for letters in NUMBERS)]
        refuse(name, f"no option '{option}'", "options", option, known, GRAMMAR)
    _check_place(name, family, option, words)
    if number is None:
        return WORDS[option]
    key, value = NUMBERS[number[1]], whole(name, f"'{short(option)}'", number[2], LARGEST)
    if key == "channels":
        return _sizes(name, option, value, words)
    return {key: value / 100 if key == "scale" else value}


def _check_place(name: str, family: str, option: str, words: Sequence[str]) -> None:
    """Refuse an option that has no meaning in this family, or beside the others."""
    if "connected" in words and re.fullmatch(OF_CONVOLUTIONS, option):
        raise InputError(f"skipscope:{name}: '{option}' is for networks of convolutions; leave it or 'connected' out")
    if not FAMILIES[family].get("skips", True):
        if option == "projection":
            raise InputError(f"skipscope:{name}: {family} has no shortcuts to project; leave 'projection' out")
        if option == "zero" or option.startswith("scale"):
            raise InputError(f"skipscope:{name}: '{option}' is for branches beside a skip, and {family} has no skips")
    if option == "additive" and family != "diracnet":
        raise InputError(f"skipscope:{name}: {family} has no identity in its weights; 'additive' is for diracnet")
    if re.fullmatch(r"s\d+", option) and family not in ("preresnet", "preplainnet"):
        raise InputError(f"skipscope:{name}: {family} has blocks of a fixed length; '{option}' is for preresnet")
    if re.fullmatch(r"[cd]\d+", option) and "cardinality" not in FAMILIES[family]:
        raise InputError(f"skipscope:{name}: {family} has one path, so '{option}' has no meaning; use resnext")


def _sizes(name: str, option: str, value: int, words: Sequence[str]) -> dict[str, Any]:
    """wK and nK: the channels of the stages, or the width of a fully connected network."""
    connected = "connected" in words
    usual = (WIDTH,) if connected else LARGE_CHANNELS if "large" in words else CHANNELS
    if option.startswith("n") and usual[0] % value:
        what = "units of the states" if connected else "channels of the first stage"
        raise InputError(f"skipscope:{name}: '{option}' does not divide the {usual[0]} {what}")
    sizes = tuple(size // value if option.startswith("n") else value * size for size in usual)
    return {"width": sizes[0]} if connected else {"channels": sizes}


def _large(family: str) -> dict[str, Any]:
    """What the form for large images has unless the name says otherwise."""
    paths = LARGE_PATHS if "cardinality" in FAMILIES[family] else {}
    shortcut = {"shortcut": "projection"} if FAMILIES[family].get("skips", True) else {}
    return {"block": "bottleneck", "channels": LARGE_CHANNELS, **shortcut, **paths}


def _spec(options: dict[str, Any]) -> ResNetSpec | ConnectedSpec:
    """Of what `parse` gives."""
    fields = {key: value for key, value in options.items() if key != "connected"}
    if "connected" in options:
        return ConnectedSpec(**fields)
    del fields["input_shape"]
    return ResNetSpec(**fields)


def beginnings() -> list[str]:
    """Of the names of papers' networks."""
    return [beginning for family in networks() for beginning in family.beginnings]


def _family(name: str) -> NetworkNames | None:
    """The paper's family that a name belongs to; none for our own. A wrong number, as in type9, does not matter."""
    first = name.split("-")[0].rstrip("0123456789")
    if first in FAMILIES:
        return None
    for family in networks():
        if first in {beginning.rstrip("0123456789") for beginning in family.beginnings}:
            return family
    return None


def options_given_once(name: str, options: Sequence[str], meaning: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """What the options of a name mean together."""
    given: dict[str, Any] = {}
    for option in options:
        meant = meaning(option)
        if meant.keys() & given.keys():
            raise InputError(f"skipscope:{name}: '{option}' says {', '.join(meant)} a second time; leave one out")
        given |= meant
    return given


def whole(name: str, what: str, digits: str, most: int) -> int:
    """Python itself refuses to read thousands of digits."""
    digits = digits.lstrip("0") or "0"
    value = int(digits) if len(digits) <= len(str(most)) else most + 1
    if not 1 <= value <= most:
        raise InputError(f"skipscope:{short(name)}: {what} expected a number of at least 1 and at most {most}")
    return value


def short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}..."


def refuse(name: str, what: str, kind: str, got: str, known: Iterable[str], grammar: str) -> NoReturn:
    known = list(known)
    close = difflib.get_close_matches(got, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"skipscope:{short(name)}: {what}{hint} ({kind}: {', '.join(known)}; a name is {grammar})")


class NetworkNames(Protocol):
    """The names of one family of networks."""

    @property
    def beginnings(self) -> Sequence[str]:
        """Such as type1: for help, for completion, and to know whose a name is."""

    def parse(self, name: str) -> dict[str, Any]:
        """The options that a name stands for, `input_shape` (channels, height, width) and `classes` among them."""

    def build(self, name: str) -> nn.Module:
        """The network, with new weights."""

    def fitting(self, name: str, shape: tuple[int, ...], classes: int) -> str:
        """The same network for other images; empty where no name stands for it."""

    def any_size(self, name: str) -> bool:
        """Whether the network takes images of other heights and widths than its input's."""
