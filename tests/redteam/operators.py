"""Random operators at any scale, each with a reference that no scale can spoil.

A case holds an operator as a user would build it (a matrix, a product, a sum, a restriction, a multiple) and, for every
sample, its exact matrix as `unit` times 2^exponent: the parts are taken over powers of two, combined in float64 near 1,
and the exponents added as whole numbers. `rounding` is what that combination, or a product, may be off by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.linear.operator import Dense, Operator
from skipscope.spectrum.scale import scaled
from tests import seeded

F32, F64 = torch.float32, torch.float64
REACH = {F64: 300, F32: 36}  # powers of ten
PART = {F64: 250, F32: 30}  # of a part of a product
SPECTRA = (
    "random",
    "clustered",
    "repeated",
    "deficient",
    "geometric",
    "steep",
    "huge",
    "near one",
    "zero",
    "orthogonal",
)
FORMS = ("dense", "product", "chain", "sum", "restricted", "scaled", "transposed", "empty slices")


class InItsOwnType(Operator):
    """An operator that cannot be evaluated in float64, as a module with casts in it cannot."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.name = operator, operator.name
        self.shape, self.dtype, self.device = operator.shape, operator.dtype, operator.device

    def _matmat(self, V: Tensor) -> Tensor:
        return self.operator.matmat(V)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.operator.rmatmat(U)

    def take(self, samples: Sequence[int]) -> InItsOwnType:
        return InItsOwnType(self.operator.take(samples))


@dataclass(frozen=True)
class Exact:
    """Matrices (B, m, n) near 1, times 2^exponent; the errors are |.|_F of what rounding does to them, in the unit."""

    unit: Tensor
    exponent: list[int]
    size: Tensor  # B: the sum of the norms of what was combined, by which rounding errors are measured

    @classmethod
    def of(cls, matrix: Tensor) -> Exact:
        largest = matrix.double().abs().flatten(1).amax(1)
        exponent = torch.where(largest > 0, torch.frexp(largest).exponent.long(), 0)
        unit = scaled(matrix.double(), -exponent)
        return cls(unit, exponent.tolist(), torch.linalg.matrix_norm(unit))

    def __matmul__(self, other: Exact) -> Exact:
        together = [a + b for a, b in zip(self.exponent, other.exponent, strict=True)]
        return Exact(self.unit @ other.unit, together, self.size * other.size)

    def __add__(self, other: Exact) -> Exact:
        top = [max(a, b) for a, b in zip(self.exponent, other.exponent, strict=True)]
        parts = [one.at(top) for one in (self, other)]
        return Exact(parts[0].unit + parts[1].unit, top, parts[0].size + parts[1].size)

    def times(self, factor: float) -> Exact:
        mantissa, exponent = math.frexp(factor)
        return Exact(self.unit * mantissa, [one + exponent for one in self.exponent], self.size * abs(mantissa))

    def at(self, exponent: list[int]) -> Exact:
        shift = torch.tensor([a - b for a, b in zip(self.exponent, exponent, strict=True)])
        return Exact(scaled(self.unit, shift), exponent, scaled(self.size, shift))


@dataclass(frozen=True)
class Case:
    name: str
    operator: Operator
    exact: Exact
    symmetric: bool
    ordinary: bool  # every sample between 1e-30 and 1e30

    def rounding(self, dtype: torch.dtype) -> Tensor:
        """(B,) in the unit: the reference's own is that of float64, one product's that of the operator's type."""
        return 4 * sum(self.operator.shape[1:]) ** 0.5 * torch.finfo(dtype).eps * self.exact.size

    def in_unit(self, numbers: Tensor) -> Tensor:
        """(B, ...) of the operator's scale over 2^exponent, in float64."""
        return scaled(numbers.double().cpu(), -torch.tensor(self.exact.exponent))


def make_case(seed: int) -> Case:
    """Everything about a case follows from its seed."""
    generator = seeded.generator(seed)

    def pick(*choices: object) -> int:
        return int(torch.randint(len(choices), (1,), generator=generator))

    dtype = (F64, F32)[seed % 2]
    symmetric = seed % 3 == 0
    spectrum, form = SPECTRA[pick(*SPECTRA)], FORMS[pick(*FORMS)]
    sizes = (1, 2, 3, 5, 8, 13, 20, 34, 50)
    m, n = sizes[pick(*sizes)], sizes[pick(*sizes)]
    m, n = (n, n) if symmetric else (m, n)
    batch = (1, 1, 2, 3)[pick(*range(4))]
    reach = REACH[dtype] if seed % 4 < 2 else 30
    powers = ((2 * torch.rand(batch, generator=generator, dtype=F64) - 1) * reach).tolist()
    if pick(0, 1):
        powers = [powers[0]] * batch
    if spectrum == "huge":
        powers = [min(power, reach - 12.0) for power in powers]  # there are values of 1e9
    values = torch.stack([_values(spectrum, min(m, n), generator) for _ in range(batch)])
    left, right = (
        _orthogonal(batch, m, generator)[:, :, : min(m, n)],
        _orthogonal(batch, n, generator)[:, :, : min(m, n)],
    )
    if symmetric:
        signs = torch.randint(0, 2, values.shape, generator=generator) * 2.0 - 1
        left, right = left * signs[:, None] if pick(0, 1) else left, left
    build = _symmetric if symmetric else _general
    operator, exact = build(form, left, values, right, powers, dtype, generator)
    if seed % 5 == 0:
        operator = InItsOwnType(operator)
    name = (
        f"seed {seed}: {form} {spectrum} {operator.shape} {dtype} at {', '.join(f'1e{power:.0f}' for power in powers)}"
    )
    return Case(name, operator, exact, symmetric, all(abs(power) <= 30 for power in powers))


def _values(spectrum: str, count: int, generator: torch.Generator) -> Tensor:
    """`count` singular values, the largest near 1 unless the name says so."""
    index = torch.arange(count, dtype=F64)
    noise = torch.rand(count, generator=generator, dtype=F64)
    made: dict[str, Callable[[], Tensor]] = {
        "random": lambda: noise,
        "clustered": lambda: 1 - 1e-9 * index,
        "repeated": lambda: 1 - 0.2 * (index // 4) / (1 + count // 4),
        "deficient": lambda: torch.where(index < count / 2, 1 + noise, 0.0),
        "geometric": lambda: 0.6**index,
        "steep": lambda: 10.0 ** -(12 * index / count),
        "huge": lambda: torch.where(index == 0, 1e9, 1 + 0.01 * noise),
        "near one": lambda: 1 + 1e-3 * (noise - 0.5) * (index % 2),
        "zero": lambda: torch.zeros(count, dtype=F64),
        "orthogonal": lambda: torch.ones(count, dtype=F64),
    }
    return made[spectrum]()


def _orthogonal(batch: int, size: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(batch, size, size, generator=generator, dtype=F64)).Q


def _times(matrix: Tensor, powers: list[float], dtype: torch.dtype) -> Tensor:
    """Matrices (B, m, n) times powers of ten, in a type."""
    return torch.stack([one * 10.0**power for one, power in zip(matrix, powers, strict=True)]).to(dtype)


def _dense(matrix: Tensor) -> tuple[Operator, Exact]:
    return Dense(matrix), Exact.of(matrix)


def _multiple(matrix: Tensor, powers: list[float], dtype: torch.dtype, sign: float) -> tuple[Operator, Exact]:
    """A matrix times a factor, which need not be a number of float32 for a float32 matrix."""
    power = max(-300, max(powers) - PART[dtype], min(300, min(powers) + PART[dtype], 1.4 * powers[0]))
    factor = sign * 10.0**power
    A, exact = _dense(_times(matrix, [one - power for one in powers], dtype))
    return factor * A, exact.times(factor)


def _chain(
    matrix: Tensor, powers: list[float], dtype: torch.dtype, generator: torch.Generator
) -> tuple[Operator, Exact]:
    """Rotations before the matrix, each with a scale of its own: what lies between them may leave the range."""
    A, exact = _dense(_times(matrix, powers, dtype))
    size, drift = matrix.shape[2], 0.0
    for last in (False, False, True):
        step = -drift if last else float(torch.randn(1, generator=generator, dtype=F64)) * PART[dtype] / 2
        step = max(-PART[dtype], min(PART[dtype], step))
        drift += step
        rotation = _orthogonal(len(matrix), size, generator)
        B, other = _dense(_times(rotation, [step] * len(matrix), dtype))
        A, exact = A @ B, exact @ other
    return A, exact


def _general(
    form: str,
    left: Tensor,
    values: Tensor,
    right: Tensor,
    powers: list[float],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> tuple[Operator, Exact]:
    matrix = left * values[:, None] @ right.mT  # B, m, n
    if form == "product":
        share, part = float(torch.rand(1, generator=generator, dtype=F64)) * 2 - 0.5, PART[dtype]
        first = [max(-part, power - part, min(part, power + part, share * power)) for power in powers]
        rest = [power - one for power, one in zip(powers, first, strict=True)]
        root = values.sqrt()[:, None]
        (P, p), (Q, q) = _dense(_times(left * root, first, dtype)), _dense(_times((right * root).mT, rest, dtype))
        return P @ Q, p @ q
    if form == "chain":
        return _chain(matrix, powers, dtype, generator)
    if form == "sum":
        other = torch.randn(matrix.shape, generator=generator, dtype=F64) * values.amax(1)[:, None, None]
        (P, p), (Q, q) = _dense(_times(other, powers, dtype)), _dense(_times(matrix - other, powers, dtype))
        return P + Q, p + q
    if form == "restricted":
        batch, m, n = matrix.shape
        whole = torch.randn(batch, m + 3, n + 2, generator=generator, dtype=F64) * values.amax(1)[:, None, None]
        rows, columns = torch.randperm(m + 3, generator=generator)[:m], torch.randperm(n + 2, generator=generator)[:n]
        whole[:, rows[:, None], columns] = matrix
        stored = _times(whole, powers, dtype)
        return Dense(stored).restrict(rows, columns), Exact.of(stored[:, rows][:, :, columns])
    if form == "scaled":
        return _multiple(matrix, powers, dtype, 1.0)
    if form == "transposed":
        A, _ = _dense(_times(matrix.mT, powers, dtype))
        return A.T, Exact.of(_times(matrix.mT, powers, dtype).mT)
    stored = _times(matrix, powers, dtype)
    if form == "empty slices":
        stored[:, :: 1 + int(torch.randint(1, 4, (1,), generator=generator))] = 0
        stored[:, :, ::5] = 0
    return _dense(stored)


def _symmetric(
    form: str,
    left: Tensor,
    values: Tensor,
    right: Tensor,
    powers: list[float],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> tuple[Operator, Exact]:
    matrix = left * values[:, None] @ right.mT
    matrix = (matrix + matrix.mT) / 2
    if form == "product":
        root = _times(right * values.sqrt()[:, None], [power / 2 for power in powers], dtype)
        (P, p), (Q, q) = _dense(root), _dense(root.mT.contiguous())
        return P @ Q, p @ q
    if form == "sum":
        other = torch.randn(matrix.shape, generator=generator, dtype=F64) * values.amax(1)[:, None, None]
        other = other + other.mT
        (P, p), (Q, q) = _dense(_times(other, powers, dtype)), _dense(_times(matrix - other, powers, dtype))
        return P + Q, p + q
    if form == "restricted":
        batch, _, n = matrix.shape
        whole = torch.zeros(batch, n + 2, n + 2, dtype=F64)
        rows = torch.randperm(n + 2, generator=generator)[:n]
        whole[:, rows[:, None], rows] = matrix
        stored = _times(whole, powers, dtype)
        return Dense(stored).restrict(rows, rows), Exact.of(stored[:, rows][:, :, rows])
    if form == "empty slices":
        matrix[:, ::3] = 0
        matrix[:, :, ::3] = 0
    if form == "scaled":
        return _multiple(matrix, powers, dtype, -1.0)
    return _dense(_times(matrix, powers, dtype))
