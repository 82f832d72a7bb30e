"""Networks drawn at random from what people build: fully connected ones, convolutional ones and transformers.

A network is fixed by a list's name and its number in it: everything below, its initial weights and the order of its
training data come from a random generator that is seeded with these two. Depth is drawn evenly on a logarithmic scale.
Most networks that people build train, and a list needs failures too: so seven of ten networks have no skips, as many
have no norms, weights are up to three times too large or too small, and depth reaches far.
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.check import fresh, read
from skipscope.numerics import seed_of

CLASSES, SIDE = 10, 8  # of the digits
HEADS = 4
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
DEPTHS = {"connected": (12, 128), "convolutional": (10, 64), "transformer": (4, 24)}  # layers; blocks of two units
WIDTHS = {"connected": (16, 32, 64, 128, 256), "convolutional": (4, 8, 16), "transformer": (16, 32, 64)}
NORMS = {  # with how many parts of all
    "connected": {"none": 7, "batch": 2, "layer": 1},
    "convolutional": {"none": 7, "batch": 2, "group": 1},
    "transformer": {"none": 7, "before": 1, "after": 2},
}
FACTORS = ("one", "one", "one", "0.3", "0.1", "depth", "zero")  # of branches; depth: 1 / sqrt(number of units)
GAINS = (0.5, 0.7, 1.0, math.sqrt(2), 2.0, 3.0)  # weights have the variance gain^2 / inputs
WITH_SKIPS = 0.3
PLAIN_DEPTHS = (24, 44)
OPTIMISERS = ("sgd", "adam")


@dataclass(frozen=True)
class Network:
    """number: in its list. skips: whether every unit is added to what enters it."""

    of: str
    number: int
    kind: str
    depth: int
    width: int
    norm: str
    skips: bool
    factor: str
    activation: str
    weights: str
    gain: float
    optimiser: str

    @property
    def name(self) -> str:
        return f"{self.of}-{self.number:03d}"

    @property
    def words(self) -> str:
        branches = {"one": "", "depth": ", branches over sqrt(units)", "zero": ", branches start at zero"}
        skips = f"skips{branches.get(self.factor, f', branches times {self.factor}')}" if self.skips else "no skips"
        unit = "blocks" if self.kind == "transformer" else "layers"
        norm = f"norm {self.norm}" if self.kind == "transformer" and self.norm != "none" else f"{self.norm} norm"
        return (
            f"{self.kind}, {self.depth} {unit} of {self.width}, {norm.replace('none', 'no')}, {skips}, "
            f"{self.activation}, {self.weights} weights times {self.gain:.2g}, {self.optimiser}"
        )

    @property
    def seed(self) -> int:
        return seed_of("unseen", self.of, self.number)

    @property
    def record(self) -> dict[str, Any]:
        return asdict(self)

    def build(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return {"connected": _connected, "convolutional": _convolutional, "transformer": _Transformer}[self.kind](
                self
            )


@dataclass(frozen=True)
class Earlier:
    """A network of `benchmarks/check.py`, with the initial weights that it has there."""

    name: str
    optimiser: str = "sgd"

    @property
    def words(self) -> str:
        return f"{self.name}, {self.optimiser}"

    @property
    def seed(self) -> int:
        return 0

    def build(self) -> nn.Module:
        return fresh(self.name)


def earlier() -> list[Earlier]:
    """Those that failed in 15 epochs: the others need not be trained for longer."""
    stored = read()
    return [Earlier(name) for name, each in (stored["networks"] | stored["later"]).items() if not each["trains"]]


def drawn(of: str, count: int) -> list[Network]:
    return [_draw(of, number) for number in range(count)]


def plain_with_batch_norm(of: str, count: int) -> list[Network]:
    """Fully connected and convolutional ones of 24 to 44 layers in turn, which the check once missed."""
    low, high = PLAIN_DEPTHS
    return [
        replace(
            network,
            kind=kind,
            depth=low + (high - low) * network.number // max(1, count - 1),
            width=WIDTHS[kind][network.number // 2 % len(WIDTHS[kind])],
            norm="batch",
            skips=False,
        )
        for network in drawn(of, count)
        for kind in (("connected", "convolutional")[network.number % 2],)
    ]


def _draw(of: str, number: int) -> Network:
    dice = random.Random(seed_of("unseen network", of, number))
    kind = tuple(DEPTHS)[number % len(DEPTHS)]
    low, high = DEPTHS[kind]
    norms = NORMS[kind]
    return Network(
        of=of,
        number=number,
        kind=kind,
        depth=round(math.exp(dice.uniform(math.log(low), math.log(high)))),
        width=dice.choice(WIDTHS[kind]),
        norm=dice.choices(tuple(norms), tuple(norms.values()))[0],
        skips=dice.random() < WITH_SKIPS,
        factor=dice.choice(FACTORS),
        activation=dice.choice(tuple(ACTIVATIONS)),
        weights=dice.choice(("normal", "normal", "orthogonal")),
        gain=dice.choice(GAINS),
        optimiser=dice.choice(OPTIMISERS),
    )


class Unit(nn.Module):
    """A branch, and around it a skip where the network has them."""

    def __init__(self, branch: nn.Module, factor: float | None) -> None:
        super().__init__()
        self.branch, self.factor = branch, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) if self.factor is None else x + self.factor * self.branch(x)


def _factor(network: Network, units: int) -> float | None:
    if not network.skips:
        return None
    return {"one": 1.0, "zero": 1.0, "depth": units**-0.5}.get(network.factor) or float(network.factor)


def _drawn_weights(network: Network, layer: nn.Module, last: bool = False) -> nn.Module:
    """last: of a branch, which starts at zero where the network says so."""
    weight = layer.weight
    inputs = weight[0].numel()
    if network.skips and network.factor == "zero" and last:
        nn.init.zeros_(weight)
    elif network.weights == "orthogonal":
        nn.init.orthogonal_(weight, gain=network.gain * max(1.0, len(weight) / inputs) ** 0.5)
    else:
        nn.init.normal_(weight, std=network.gain / math.sqrt(inputs))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _normalisation(network: Network, width: int) -> list[nn.Module]:
    if network.norm == "batch":
        return [(nn.BatchNorm2d if network.kind == "convolutional" else nn.BatchNorm1d)(width)]
    return {"layer": [nn.LayerNorm(width)], "group": [nn.GroupNorm(2, width)]}.get(network.norm, [])


def _connected(network: Network) -> nn.Module:
    """Layers of one width; a unit is one layer, in half of the networks with skips two."""
    width, act = network.width, ACTIVATIONS[network.activation]
    layers_of_unit = 1 + network.number % 2 if network.skips else 1
    units = max(1, (network.depth - 2) // layers_of_unit)
    body: list[nn.Module] = []
    for _ in range(units):
        parts: list[nn.Module] = []
        for place in range(layers_of_unit):
            linear = _drawn_weights(network, nn.Linear(width, width), place == layers_of_unit - 1)
            parts += [linear, *_normalisation(network, width), act()]
        body.append(Unit(nn.Sequential(*parts), _factor(network, units)))
    first = _drawn_weights(network, nn.Linear(SIDE * SIDE, width))
    last = _drawn_weights(network, nn.Linear(width, CLASSES))
    return nn.Sequential(nn.Flatten(), first, *_normalisation(network, width), act(), *body, last)


def _convolutional(network: Network) -> nn.Module:
    """Two stages, of 8 and of 4 pixels a side with twice the channels; a unit is two layers where there are skips."""
    act = ACTIVATIONS[network.activation]
    layers_of_unit = 2 if network.skips else 1
    units = max(2, (network.depth - 3) // layers_of_unit)

    def layer(inputs: int, outputs: int, stride: int = 1, last: bool = False) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1)
        return [_drawn_weights(network, convolution, last), *_normalisation(network, outputs), act()]

    def stage(channels: int, count: int) -> list[nn.Module]:
        def branch() -> nn.Module:
            layers = [layer(channels, channels, last=place == layers_of_unit - 1) for place in range(layers_of_unit)]
            return nn.Sequential(*chain.from_iterable(layers))

        return [Unit(branch(), _factor(network, units)) for _ in range(count)]

    few, many = network.width, 2 * network.width
    body = [*layer(1, few), *stage(few, units // 2), *layer(few, many, 2), *stage(many, units - units // 2)]
    last = _drawn_weights(network, nn.Linear(many, CLASSES))
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


class _Attention(nn.Module):
    def __init__(self, network: Network) -> None:
        super().__init__()
        width = network.width
        self.queries, self.keys, self.values, self.out = (
            _drawn_weights(network, nn.Linear(width, width), last) for last in (False, False, False, True)
        )

    def forward(self, x: Tensor) -> Tensor:
        heads = [part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.queries, self.keys, self.values)]
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        return self.out(mixed.transpose(1, 2).flatten(2))


class _Transformer(nn.Module):
    """The eight rows of an image are its tokens. Norms are in front of each branch, or after each sum."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        width, before, after = network.width, network.norm == "before", network.norm == "after"
        self.rows = _drawn_weights(network, nn.Linear(SIDE, width))
        self.places = nn.Parameter(torch.randn(SIDE, width))
        body: list[nn.Module] = []
        for _ in range(network.depth):
            perceptron = nn.Sequential(
                _drawn_weights(network, nn.Linear(width, 2 * width)),
                ACTIVATIONS[network.activation](),
                _drawn_weights(network, nn.Linear(2 * width, width), True),
            )
            for branch in (_Attention(network), perceptron):
                normed = nn.Sequential(nn.LayerNorm(width), branch) if before else branch
                unit = Unit(normed, _factor(network, 2 * network.depth))
                body.append(nn.Sequential(unit, nn.LayerNorm(width)) if after else unit)
        self.body = nn.Sequential(*body)
        self.norm = nn.LayerNorm(width) if before else nn.Identity()
        self.classes = _drawn_weights(network, nn.Linear(width, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.classes(self.norm(self.body(self.rows(x.squeeze(1)) + self.places)).mean(1))
