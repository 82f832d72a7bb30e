"""Operators whose singular values (or eigenvalues) are known from how they are made: one table for all solver tests.

Every case is lazy and seeded; `make(dtype)` gives the operator and `values` the expected values in float64,
(B, min(m, n)) in descending order. No value here comes from a decomposition of the operator's own matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from skipscope.linear.operator import Dense, Operator
from tests import seeded


@dataclass(frozen=True)
class Case:
    make: Callable[[torch.dtype], Operator]
    values: Callable[[], Tensor]  # B, min(m, n), descending


class Convolution(Operator):
    """A circular convolution of c channels on a d x d grid, with one kernel (c, c, 3, 3) per sample."""

    def __init__(self, kernels: Tensor, side: int) -> None:
        self.kernels, self.side = kernels, side  # B, c, c, 3, 3
        size = kernels.shape[1] * side * side
        self.shape, self.dtype, self.device = (len(kernels), size, size), kernels.dtype, kernels.device
        self.name = "circular convolution"

    def _matmat(self, V: Tensor) -> Tensor:
        return self._apply(V, self.kernels)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self._apply(U, self.kernels.transpose(1, 2).flip(3, 4))

    def _apply(self, block: Tensor, kernels: Tensor) -> Tensor:
        batch, size, k = block.shape
        images = block.mT.reshape(batch, k, kernels.shape[1], self.side, self.side)
        padded = [F.pad(image, (1, 1, 1, 1), mode="circular") for image in images]
        results = [F.conv2d(image, kernel) for image, kernel in zip(padded, kernels, strict=True)]
        return torch.stack(results).reshape(batch, k, size).mT

    def take(self, samples: Sequence[int]) -> Convolution:
        return Convolution(self.kernels[list(samples)], self.side)

    def double(self) -> Convolution:
        return Convolution(self.kernels.double(), self.side)

    def symbol(self) -> Tensor:
        """(B, d, d, c, c): the convolution is block diagonal in the Fourier basis, with these blocks."""
        padded = torch.zeros(*self.kernels.shape[:3], self.side, self.side, dtype=torch.float64)
        padded[..., :3, :3] = self.kernels.double()
        return torch.fft.fft2(padded).permute(0, 3, 4, 1, 2)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=seeded.generator(seed), dtype=torch.float64)


def orthonormal(batch: int, size: int, columns: int, seed: int) -> Tensor:
    return torch.linalg.qr(random(batch, size, columns, seed=seed))[0]


def from_values(values: Tensor, m: int, n: int, seed: int) -> Tensor:
    """(B, m, n) with the given non-zero singular values (B, r)."""
    U, V = orthonormal(len(values), m, values.shape[1], seed), orthonormal(len(values), n, values.shape[1], seed + 1)
    return (U * values[:, None]) @ V.mT


def dense(make: Callable[[], Tensor]) -> Callable[[torch.dtype], Operator]:
    return lambda dtype: Dense(make().to(dtype))


def descending(values: Tensor) -> Tensor:
    return values.sort(1, descending=True).values


def with_values(values: Callable[[], Tensor], m: int, n: int, seed: int) -> Case:
    def padded() -> Tensor:
        return F.pad(descending(values()), (0, min(m, n) - values().shape[1]))

    return Case(dense(lambda: from_values(values(), m, n, seed)), padded)


def convolution(channels: int, side: int, batch: int, seed: int) -> Case:
    def make(dtype: torch.dtype) -> Convolution:
        return Convolution(random(batch, channels, channels, 3, 3, seed=seed).to(dtype), side)

    def values() -> Tensor:
        return descending(torch.linalg.svdvals(make(torch.float64).symbol()).flatten(1))

    return Case(make, values)


def batch(*rows: Tensor) -> Callable[[], Tensor]:
    return lambda: torch.stack([row.double() for row in rows])


SINGULAR: dict[str, Case] = {
    "diagonal": Case(
        dense(lambda: torch.diag_embed(torch.stack([torch.linspace(-1, 3, 50), torch.linspace(0, 1, 50)]).double())),
        lambda: descending(torch.stack([torch.linspace(-1, 3, 50), torch.linspace(0, 1, 50)]).double().abs()),
    ),
    "orthogonal": Case(
        dense(lambda: 2.5 * orthonormal(2, 60, 60, seed=1)), lambda: torch.full((2, 60), 2.5, dtype=torch.float64)
    ),
    "identity plus low rank": Case(
        dense(
            lambda: (
                torch.eye(80, dtype=torch.float64)
                + (orthonormal(1, 80, 3, seed=2) * torch.tensor([4.0, 1.0, -0.5])) @ orthonormal(1, 80, 3, seed=2).mT
            )
        ),
        lambda: torch.tensor([[5.0, 2.0] + [1.0] * 77 + [0.5]], dtype=torch.float64),
    ),
    "convolution": convolution(channels=2, side=7, batch=2, seed=3),
    "tall of rank 5": with_values(batch(torch.tensor([9.0, 5, 5, 2, 1])), 90, 40, seed=4),
    "wide of rank 12": with_values(batch(torch.linspace(3, 1, 12), torch.linspace(1, 0.1, 12)), 45, 120, seed=6),
    "decaying": with_values(batch(0.8 ** torch.arange(70)), 70, 70, seed=8),
    "clustered": with_values(
        batch(torch.cat([1 + 1e-6 * torch.arange(5), torch.linspace(0.7, 0.1, 65)])), 75, 70, seed=10
    ),
    "repeated": with_values(
        batch(torch.cat([torch.tensor([3.0]), torch.ones(20), torch.linspace(0.95, 0.05, 59)])), 80, 80, seed=12
    ),
    "easy beside hard": with_values(batch(0.5 ** torch.arange(80), torch.linspace(1, 0.2, 80)), 80, 80, seed=14),
    "zero": Case(dense(lambda: torch.zeros(2, 50, 45, dtype=torch.float64)), lambda: torch.zeros(2, 45).double()),
    "1 x 1": Case(
        dense(lambda: torch.tensor([[[-3.0]], [[0.0]]]).double()), lambda: torch.tensor([[3.0], [0.0]]).double()
    ),
    "one row": Case(dense(lambda: torch.full((1, 1, 16), 0.5).double()), lambda: torch.tensor([[2.0]]).double()),
}


def rotated(values: Tensor, seed: int) -> Tensor:
    """(B, n, n) symmetric with the given eigenvalues (B, n)."""
    Q = orthonormal(len(values), values.shape[1], values.shape[1], seed)
    matrix = (Q * values[:, None]) @ Q.mT
    return (matrix + matrix.mT) / 2


def with_eigenvalues(values: Callable[[], Tensor], seed: int) -> Case:
    return Case(dense(lambda: rotated(values(), seed)), lambda: descending(values()))


def laplacian(size: int) -> Case:
    """Of a path with fixed ends: 2 - 2 cos(pi j / (n + 1)), j = 1 ... n."""
    off = -torch.ones(size - 1, dtype=torch.float64)

    def matrix() -> Tensor:
        return 2 * torch.eye(size, dtype=torch.float64) + torch.diag(off, 1) + torch.diag(off, -1)

    angles = math.pi * torch.arange(1, size + 1, dtype=torch.float64) / (size + 1)
    return Case(dense(matrix), lambda: descending((2 - 2 * angles.cos())[None]))


def blur(side: int) -> Case:
    """A convolution with a symmetric kernel: its eigenvalues are its Fourier symbol, which is real."""
    row = torch.tensor([0.25, 0.6, 0.25], dtype=torch.float64)
    kernel = torch.outer(row, row)[None, None, None]

    def values() -> Tensor:
        symbol = 0.6 + 0.5 * (2 * math.pi * torch.arange(side, dtype=torch.float64) / side).cos()
        return descending(torch.outer(symbol, symbol).reshape(1, -1))

    return Case(lambda dtype: Convolution(kernel.to(dtype), side), values)


SYMMETRIC: dict[str, Case] = {
    "diagonal": Case(
        dense(lambda: torch.diag_embed(torch.stack([torch.linspace(-2, 1, 60), torch.linspace(1, 2, 60)]).double())),
        lambda: descending(torch.stack([torch.linspace(-2, 1, 60), torch.linspace(1, 2, 60)]).double()),
    ),
    "reflection": with_eigenvalues(batch(torch.cat([torch.ones(40), -torch.ones(24)])), seed=20),
    "laplacian": laplacian(64),
    "blur": blur(9),
    "saddle": with_eigenvalues(
        batch(torch.cat([torch.tensor([7.0, 3.0, -4.0]), torch.zeros(67)]), torch.linspace(-1, 1.5, 70)), seed=22
    ),
    "negative definite": with_eigenvalues(batch(-torch.linspace(0.5, 3, 60)), seed=24),
    "repeated": with_eigenvalues(batch(torch.cat([torch.full((12,), 2.0), torch.linspace(1.9, -1.9, 60)])), seed=26),
    "zero": Case(dense(lambda: torch.zeros(2, 40, 40, dtype=torch.float64)), lambda: torch.zeros(2, 40).double()),
    "1 x 1": Case(dense(lambda: torch.tensor([[[-3.0]]]).double()), lambda: torch.tensor([[-3.0]]).double()),
}


def principal_sines(first: Tensor, second: Tensor) -> Tensor:
    """The largest sine of the angles between two subspaces with orthonormal bases (B, n, k): |(I - Q Q^T) P|."""
    first, second = first.double(), second.double()
    return torch.linalg.matrix_norm(second - first @ (first.mT @ second), ord=2)
