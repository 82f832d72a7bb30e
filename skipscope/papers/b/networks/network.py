"""The n-shortcut networks of Demystifying ResNet: square weights, and an identity shortcut every n layers.

    h_r = h_{r-1} + post(W^{r,n} mid( ... mid(W^{r,1} pre(h_{r-1}) + b^r)))        r = 1 ... R,  depth L = n R

n = 0 is the plain network: units without their shortcut, by default one of all L layers. Units of two layers give a
plain network the activations of the 2-shortcut network, a ReLU after each odd layer and not after each layer:
`ShortcutSpec(16, n=0, path=2, mid="relu")`, or `.plain` of the 2-shortcut network.

Weights are one tensor (..., L, d, d), in front of which any dimensions may stand that count networks; samples are rows.
As a vector they are unit after unit and layer after layer, each column by column, as in the paper's theorem 2
(`theory/hessian_at_zero.py`); a bias follows the first weight of its unit, as a further column.

S. Li, J. Jiao, Y. Han, T. Weissman: Demystifying ResNet, 2016, arXiv:1611.01186.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skipscope.constraints import Constrained, Constraint, Expectation, at_least
from skipscope.errors import InputError
from skipscope.numerics import normal
from skipscope.papers.b.theory.hessian_at_zero import identity
from skipscope.papers.b.theory.slopes import Activation, along

ACTIVATIONS: dict[str, Activation] = {
    "identity": identity,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "softplus": F.softplus,
}
KNOWN_ACTIVATION = Constraint(
    f"a function or one of {', '.join(ACTIVATIONS)}", lambda given: callable(given) or given in ACTIVATIONS
)
RELUS: tuple[Activation, ...] = (torch.relu, F.relu)
INITS = ("xavier", "orthogonal", "zero")
ZERO_FACTOR = 0.01  # what the paper calls zero is this times Xavier's weights


@dataclass(frozen=True)
class ShortcutSpec(Constrained):
    """An n-shortcut network without its weights. pre, mid, post: one of ACTIVATIONS, or any elementwise function."""

    depth: Annotated[int, at_least(1)]  # weight layers
    width: Annotated[int, at_least(1)] = 10
    n: Annotated[int, at_least(0)] = 2
    pre: Annotated[str | Activation, KNOWN_ACTIVATION] = "identity"  # at the entry of each unit's branch
    mid: Annotated[str | Activation, KNOWN_ACTIVATION] = "identity"  # between its layers
    post: Annotated[str | Activation, KNOWN_ACTIVATION] = "identity"  # at its end, before the sum
    bias: bool = False  # one after the first weight of each unit
    path: Annotated[int, at_least(0)] = 0  # layers of a unit; 0: n of them, or all for n = 0

    def expectations(self) -> Iterator[Expectation]:
        yield (
            not self.n or self.path in (0, self.n),
            f"path: expected 0 or n for a network with shortcuts, got path={self.path} with n={self.n}",
        )
        yield (
            self.depth % self.unit_depth == 0,
            f"depth: expected a multiple of {self.unit_depth}, the layers of a unit, got {self.depth}",
        )

    @property
    def unit_depth(self) -> int:
        """The layers of a unit."""
        return self.n or self.path or self.depth

    @property
    def units(self) -> int:
        """R"""
        return self.depth // self.unit_depth

    @property
    def parameters(self) -> int:
        return self.depth * self.width**2 + self.bias * self.units * self.width

    @property
    def plain(self) -> ShortcutSpec:
        """The same layers and activations without shortcuts."""
        return replace(self, n=0, path=self.unit_depth)

    def activation(self, place: str) -> Activation:
        given = getattr(self, place)
        return ACTIVATIONS[given] if isinstance(given, str) else given

    def after(self, layer: int) -> Activation:
        """The activation that follows a layer, counted from 0."""
        return self.activation("mid" if (layer + 1) % self.unit_depth else "post")

    def layers(self, unit: int) -> range:
        return range(unit * self.unit_depth, (unit + 1) * self.unit_depth)

    @property
    def _used(self) -> set[Activation]:
        places = ("pre", "post") if self.unit_depth == 1 else ("pre", "mid", "post")
        return {self.activation(place) for place in places}

    @property
    def linear(self) -> bool:
        """Linear in its input: no bias and no activations."""
        return not self.bias and self._used == {identity}

    @property
    def piecewise_linear(self) -> bool:
        """Linear where no unit of a ReLU switches."""
        return not self.bias and self._used <= {identity, *RELUS}

    def check(self, weights: Tensor, biases: Tensor | None = None) -> None:
        expected = (self.depth, self.width, self.width)
        if weights.shape[-3:] != expected or not weights.is_floating_point():
            raise InputError(
                f"weights: expected floating point numbers of shape (..., {', '.join(map(str, expected))}), "
                f"got {weights.dtype} of shape {tuple(weights.shape)}"
            )
        if self.bias != (biases is not None):
            raise InputError(
                f"biases: expected {'a tensor' if self.bias else 'none'} for bias={self.bias}, "
                f"got {'none' if biases is None else 'a tensor'}"
            )
        if biases is not None and biases.shape != (*weights.shape[:-3], self.units, self.width):
            expected_biases = (*weights.shape[:-3], self.units, self.width)
            raise InputError(f"biases: expected the shape {expected_biases}, got {tuple(biases.shape)}")


# -- weights


def initial_weights(
    spec: ShortcutSpec,
    init: str = "xavier",
    seed: int | torch.Generator = 0,
    *,
    factor: float = ZERO_FACTOR,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> Tensor:
    """(L, d, d), drawn on the CPU in float64, so that they are the same on every device.

    xavier: normal, of variance 2 / (fan in + fan out) = 1/d. orthogonal: uniform among the orthogonal matrices (Saxe
    et al.). zero: `factor` times xavier's of the same seed.
    """
    if init not in INITS:
        raise InputError(f"init: expected one of {', '.join(INITS)}, got {init!r}")
    if isinstance(seed, int):
        seed = torch.Generator("cpu").manual_seed(seed)
    if seed.device.type != "cpu":
        raise InputError(f"seed: expected a generator on the CPU, got one on {seed.device}")
    drawn = normal((spec.depth, spec.width, spec.width), seed)
    if init == "orthogonal":
        Q, R = torch.linalg.qr(drawn)
        weights = Q * R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # else Q is not uniform
    else:
        weights = drawn * (factor if init == "zero" else 1.0) / spec.width**0.5
    return weights.to(dtype=dtype, device=torch.get_default_device() if device is None else device)


def as_vector(spec: ShortcutSpec, weights: Tensor, biases: Tensor | None = None) -> Tensor:
    """(..., parameters)"""
    spec.check(weights, biases)
    d = spec.width
    columns = weights.mT.reshape(*weights.shape[:-3], spec.units, spec.unit_depth * d * d)
    if biases is not None:
        columns = torch.cat([columns[..., : d * d], biases, columns[..., d * d :]], -1)
    return columns.flatten(-2)


def from_vector(spec: ShortcutSpec, vector: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weights and biases."""
    if vector.shape[-1:] != (spec.parameters,):
        raise InputError(f"expected a vector of {spec.parameters} parameters, got the shape {tuple(vector.shape)}")
    d, outer = spec.width, vector.shape[:-1]
    columns = vector.reshape(*outer, spec.units, -1)
    biases = None
    if spec.bias:
        biases = columns[..., d * d : d * d + d]
        columns = torch.cat([columns[..., : d * d], columns[..., d * d + d :]], -1)
    return columns.reshape(*outer, spec.depth, d, d).mT, biases


# -- forward and backward


@dataclass
class Seen:
    """What a forward pass leaves for the derivatives. A slope of None is 1 everywhere."""

    inputs: list[Tensor] = field(default_factory=list)  # of each layer: ..., m, d
    slopes: list[Tensor | None] = field(default_factory=list)  # of the activation after each layer
    entries: list[Tensor | None] = field(default_factory=list)  # of pre, at each unit


def outputs(
    spec: ShortcutSpec, weights: Tensor, x: Tensor, biases: Tensor | None = None, *, seen: Seen | None = None
) -> Tensor:
    """The networks' outputs (..., m, d) for the rows of x: (m, d), or (..., m, d) with rows for each network."""
    spec.check(weights, biases)
    if x.ndim < 2 or x.shape[-1] != spec.width:
        raise InputError(f"x: expected the shape (..., samples, {spec.width}), got {tuple(x.shape)}")
    each = weights.unbind(-3)
    h = x
    for unit in range(spec.units):
        z = _activated(spec.activation("pre"), h, None if seen is None else seen.entries)
        for layer in spec.layers(unit):
            if seen is not None:
                seen.inputs.append(z)
            z = z @ each[layer].mT
            if biases is not None and layer == spec.layers(unit)[0]:
                z = z + biases[..., unit, None, :]
            z = _activated(spec.after(layer), z, None if seen is None else seen.slopes)
        h = h + z if spec.n else z
    return h


def backward(spec: ShortcutSpec, weights: Tensor, seen: Seen, errors: Tensor) -> list[Tensor]:
    """Derivatives by the output of each layer (before its activation), from those by the network's: (..., m, d)."""
    each = weights.unbind(-3)
    found: list[Tensor] = [errors] * spec.depth
    for unit in reversed(range(spec.units)):
        branch = errors
        for layer in reversed(spec.layers(unit)):
            found[layer] = branch = scaled(branch, seen.slopes[layer])
            branch = branch @ each[layer]
        branch = scaled(branch, seen.entries[unit])
        errors = errors + branch if spec.n else branch
    return found


def scaled(values: Tensor, slope: Tensor | None) -> Tensor:
    return values if slope is None else values * slope


def _activated(activation: Activation, z: Tensor, slopes: list[Tensor | None] | None) -> Tensor:
    result = activation(z)
    if slopes is not None:
        slopes.append(None if activation is identity else result > 0 if activation in RELUS else along(activation, z))
    return result


# -- the same as a module


class ShortcutUnit(nn.Module):
    """One unit; its branch alone where the network has no shortcuts."""

    def __init__(self, spec: ShortcutSpec) -> None:
        super().__init__()
        self.spec = spec
        self.layers = nn.ModuleList(
            nn.Linear(spec.width, spec.width, bias=spec.bias and layer == 0) for layer in range(spec.unit_depth)
        )

    def forward(self, h: Tensor) -> Tensor:
        z = self.spec.activation("pre")(h)
        for index, layer in enumerate(self.layers):
            z = self.spec.after(index)(layer(z))
        return h + z if self.spec.n else z


class ShortcutNet(nn.Module):
    """The network as a module, for all that works on modules. It takes copies of the weights, (L, d, d)."""

    def __init__(self, spec: ShortcutSpec, weights: Tensor, biases: Tensor | None = None) -> None:
        super().__init__()
        spec.check(weights, biases)
        if weights.ndim != 3:
            raise InputError(f"ShortcutNet: expected the weights of one network, got the shape {tuple(weights.shape)}")
        self.spec = spec
        self.units = nn.Sequential(*(ShortcutUnit(spec) for _ in range(spec.units)))
        self.to(dtype=weights.dtype, device=weights.device)
        with torch.no_grad():
            for layer, weight in zip(self._layers, weights, strict=True):
                layer.weight.copy_(weight)
            for unit, bias in enumerate(() if biases is None else biases):
                self._layers[spec.layers(unit)[0]].bias.copy_(bias)

    @property
    def _layers(self) -> Sequence[nn.Linear]:
        return [layer for layer in self.modules() if isinstance(layer, nn.Linear)]

    @property
    def weights(self) -> Tensor:
        """(L, d, d), a copy."""
        return torch.stack([layer.weight.detach() for layer in self._layers])

    @property
    def biases(self) -> Tensor | None:
        """(R, d), a copy; None without biases."""
        found = [layer.bias.detach() for layer in self._layers if layer.bias is not None]
        return torch.stack(found) if found else None

    def forward(self, x: Tensor) -> Tensor:
        return self.units(x)
