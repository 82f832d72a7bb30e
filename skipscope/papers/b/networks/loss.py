"""The squared loss of n-shortcut networks, L = 1/(2m) sum |f(x) - y|^2, with its gradient by all weights.

A linear network f(x) = T x needs the second moments of the data alone, at a cost that does not depend on m:

    L = (<|y|^2> - 2 tr(T^T S_yx) + tr(T^T T S_xx)) / 2        dL/dT = T S_xx - S_yx

Both kinds of data are rows that go through the network, with a loss and its derivatives at what comes out: the samples
themselves, or for a linear network the d unit vectors, which come out as the columns of T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from skipscope.constraints import Constrained, Expectation
from skipscope.errors import InputError
from skipscope.papers.b.networks.network import Seen, ShortcutSpec, backward, outputs

MEMORY = 2**28  # bytes that the work on samples may take at a time on the CPU
DEVICE_MEMORY = 2**32  # and on other devices
SAMPLES_PER_PRODUCT = 240  # on a GPU


@dataclass(frozen=True, eq=False)
class Samples(Constrained):
    """Inputs and targets, one row per sample; possibly a part of a larger set of `of` samples."""

    x: Tensor  # m, d
    y: Tensor  # m, d
    of: int = 0  # 0: these are all

    def expectations(self) -> Iterator[Expectation]:
        yield (
            self.x.ndim == 2 and self.x.shape == self.y.shape and self.x.numel() > 0,
            f"expected x and y of the same shape (samples, d), got {tuple(self.x.shape)} and {tuple(self.y.shape)}",
        )
        yield (
            self.x.is_floating_point() and self.y.is_floating_point(),
            f"expected floating point numbers, got x of {self.x.dtype} and y of {self.y.dtype}",
        )

    @property
    def width(self) -> int:
        return self.x.shape[1]

    @property
    def total(self) -> int:
        return self.of or len(self.x)

    def parts(self, size: int) -> Iterator[Samples]:
        for x, y in zip(self.x.split(size), self.y.split(size), strict=True):
            yield Samples(x, y, self.total)

    def like(self, tensor: Tensor) -> Samples:
        """On its device, in its precision."""
        return replace(self, x=self.x.to(tensor), y=self.y.to(tensor))

    def loss(self, results: Tensor) -> tuple[Tensor, Tensor]:
        """Of outputs (..., m, d), and the derivatives by them."""
        errors = results - self.y
        return errors.square().sum((-2, -1)) / (2 * self.total), errors / self.total


@dataclass(frozen=True, eq=False)
class Moments(Constrained):
    """Second moments of inputs and targets: all that a linear network sees."""

    sxx: Tensor  # d, d: <x x^T>
    syx: Tensor  # d, d: <y x^T>
    syy: float  # <|y|^2>

    def expectations(self) -> Iterator[Expectation]:
        yield (
            self.sxx.ndim == 2 and len(self.sxx) == self.sxx.shape[1] and self.sxx.shape == self.syx.shape,
            f"expected two square matrices of one size, got {tuple(self.sxx.shape)} and {tuple(self.syx.shape)}",
        )

    @classmethod
    def of(cls, data: Samples) -> Moments:
        x, y = data.x.double(), data.y.double()
        return cls(x.T @ x / len(x), y.T @ x / len(x), float(y.square().sum() / len(x)))

    @property
    def width(self) -> int:
        return len(self.sxx)

    @cached_property
    def x(self) -> Tensor:
        """The rows that go through the network."""
        return torch.eye(self.width, dtype=self.sxx.dtype, device=self.sxx.device)

    @property
    def lowest_loss(self) -> float:
        """Of any linear map: (<|y|^2> - tr(S_yx S_xx^+ S_xy)) / 2."""
        found = torch.linalg.lstsq(self.sxx.cpu(), self.syx.T.cpu(), driver="gelsd").solution
        return (self.syy - float((self.syx.T.cpu() * found).sum())) / 2

    def like(self, tensor: Tensor) -> Moments:
        return replace(self, sxx=self.sxx.to(tensor), syx=self.syx.to(tensor))

    def loss(self, results: Tensor) -> tuple[Tensor, Tensor]:
        """Of T^T (..., d, d), as it comes out for `x`, and the derivatives by it."""
        errors = self.sxx @ results - self.syx.T
        return (self.syy + (results * (errors - self.syx.T)).sum((-2, -1))) / 2, errors


Data = Samples | Moments


def check_width(spec: ShortcutSpec, data: Data) -> None:
    if data.width != spec.width:
        raise InputError(f"data: expected {spec.width} values per sample, as the network is wide, got {data.width}")


def suited(spec: ShortcutSpec, weights: Tensor, data: Data) -> Data:
    """The data as a network needs them: moments for a linear one, on the device and in the precision of the weights."""
    spec.check(weights)
    check_width(spec, data)
    if spec.linear:
        data = Moments.of(data) if isinstance(data, Samples) else data
    elif isinstance(data, Moments):
        raise InputError("data: second moments are enough for a linear network only; expected Samples for this one")
    return data.like(weights)


def loss_and_gradient(
    spec: ShortcutSpec, weights: Tensor, data: Data, memory: int | None = None
) -> tuple[Tensor, Tensor]:
    """(...,) and (..., L, d, d), for any activations; weights (..., L, d, d)."""
    return passed(spec, weights, suited(spec, weights, data), memory)


@torch.no_grad()
def loss_of(spec: ShortcutSpec, weights: Tensor, data: Data, memory: int | None = None) -> Tensor:
    """(...,)"""
    data = suited(spec, weights, data)
    parts = parts_of(spec, weights, data, memory)
    return torch.stack([part.loss(outputs(spec, weights, part.x))[0] for part in parts]).sum(0)


@torch.no_grad()
def passed(spec: ShortcutSpec, weights: Tensor, data: Data, memory: int | None = None) -> tuple[Tensor, Tensor]:
    """`loss_and_gradient` of data that are `suited` already."""
    found = (_of_part(spec, weights, part) for part in parts_of(spec, weights, data, memory))
    loss, gradient = next(found)
    for more_loss, more_gradient in found:
        loss += more_loss
        gradient += more_gradient
    return loss, gradient


def _of_part(spec: ShortcutSpec, weights: Tensor, part: Data) -> tuple[Tensor, Tensor]:
    seen = Seen()
    loss, errors = part.loss(outputs(spec, weights, part.x, seen=seen))
    deltas = backward(spec, weights, seen, errors)
    return loss, torch.stack([_outer_sum(delta, z) for delta, z in zip(deltas, seen.inputs, strict=True)], -3)


def _outer_sum(a: Tensor, b: Tensor) -> Tensor:
    """a^T b (..., d, d) of rows (..., m, d). A GPU works on one product with one block: it gets more of them."""
    return a.mT @ b if a.device.type == "cpu" else in_pieces(a, b, SAMPLES_PER_PRODUCT)


def in_pieces(a: Tensor, b: Tensor, size: int) -> Tensor:
    """a^T b as a sum over pieces of so many rows."""
    whole = a.shape[-2] - a.shape[-2] % size
    pieces = [rows[..., :whole, :].unflatten(-2, (-1, size)) for rows in (a, b)]
    return (pieces[0].mT @ pieces[1]).sum(-3) + a[..., whole:, :].mT @ b[..., whole:, :]


def parts_of(spec: ShortcutSpec, weights: Tensor, data: Data, memory: int | None) -> Iterator[Data]:
    """Parts of the data whose passes stay within `memory`: inputs, slopes and derivatives of each layer."""
    return within(memory, data, 3 * weights[..., 0].numel(), weights)


def within(memory: int | None, data: Data, numbers: int, like: Tensor) -> Iterator[Data]:
    """Parts of the data where each sample takes so many numbers of the kind of `like`. None: the device's default."""
    if isinstance(data, Moments):
        return iter([data])
    if memory is None:
        memory = MEMORY if like.device.type == "cpu" else DEVICE_MEMORY
    return data.parts(max(1, memory // (numbers * like.element_size())))
