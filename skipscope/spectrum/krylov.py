"""What the two iterations share: orthonormal blocks, thick restarts, the stopping rule, the cost model and signs.

Both Golub-Kahan and Lanczos keep orthonormal bases U (m, p) and V (n, p) (one and the same basis when the operator is
symmetric), the projected matrix P = U^T A V (p, p), a block N of vectors that come next, and the relations

    A V = U P,        A^T U = V P^T + N K,        V^T N = 0,

from which a Ritz triplet (U x, s, V y) of P has the residual |K x|, known without another product. A *cycle* widens the
bases block by block to a fixed size; a *thick restart* (Wu and Simon 2000; Baglama and Reichel 2005) rotates them to
the wanted Ritz vectors and a few more, with the relations kept.

Three guards go with it. (1) Orthogonality is full, by block Gram-Schmidt repeated until nothing is lost ("twice is
enough", Giraud, Langou, Rozloznik, van den Eshof 2005). (2) A vector that depends on the others is replaced by a random
one, with a zero in the coefficients, so that an exhausted Krylov space goes on. (3) A Krylov space holds no more copies
of a repeated value than its block is wide. So values that have converged are tried once more: everything but their
vectors is dropped, the iteration starts from a fresh random block, and it ends when the same values stand and the next
one, seen from there, cannot overtake them. What has not stood that trial when the products are spent has not converged,
however small its residual: it is a triplet, but perhaps not the one that was asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator
from skipscope.numerics import normal, random_numbers
from skipscope.spectrum.scale import MARGIN, InUnit, scaled, smallest

DENSE_BYTES = 8 * 2**30  # the most that a dense route takes without being asked: matrix, vectors and work space
DENSE_COPIES = 4
STEP_FLOPS = 1e8  # what a step of an iteration costs however small the operator: its many small calls
EXPECTED_CYCLES = 12
BLOCK = 2  # vectors a product: between the fewest products (1) and the fewest steps (4 and more)
ADJOINT_TOLERANCE = 1e-3  # between a product and the transposed one: rounding is far below, a mistake above
TIE = 0.99


@dataclass(frozen=True)
class Plan:
    """The sizes of an iteration and the estimated costs, per sample, of both routes in floating-point operations."""

    block: int  # vectors a product
    subspace: int  # basis vectors at the end of a cycle
    keep: int  # basis vectors that a restart keeps
    dense: float
    dense_bytes: int
    iterative: float

    def route(self, prefer_dense: bool = False) -> Literal["dense", "iterative"]:
        cheaper = prefer_dense or self.dense <= self.iterative
        return "dense" if cheaper and self.dense_bytes <= DENSE_BYTES else "iterative"

    def parts(self, batch: int) -> Iterator[range]:
        """The samples whose matrices are in memory together."""
        at_once = max(1, DENSE_BYTES // self.dense_bytes)
        return (range(start, min(start + at_once, batch)) for start in range(0, batch, at_once))


def plan(
    shape: tuple[int, int, int], k: int, block: int | None, decomposition: float, sides: int, steps: int = 14
) -> Plan:
    """Both costs, where one product is taken to cost as much as that with a dense matrix, 2 m n.

    dense:      2 m n min(m, n) to assemble + `decomposition` + two calls
    iterative:  P (2 m n + 8 max(m, n) p) + a fixed price per step, for P = sides (p + 12 (p - keep)) products: a full
                cycle and twelve more, every vector orthogonalised twice against p others
    """
    batch, m, n = shape
    small, large = min(m, n), max(m, n)
    block = min(block or BLOCK, small)
    subspace = min(small, max(2 * k, k + steps * block))
    keep = (k + subspace) // 2
    products = sides * (subspace + EXPECTED_CYCLES * (subspace - keep))
    return Plan(
        block=block,
        subspace=subspace,
        keep=keep,
        dense=2.0 * m * n * small + decomposition + 2 * STEP_FLOPS / batch,
        dense_bytes=8 * m * n * DENSE_COPIES,
        iterative=products * (2.0 * m * n + 8.0 * large * subspace) + products / sides / block * STEP_FLOPS / batch,
    )


@dataclass(frozen=True)
class Ground:
    """What the values of every sample stand on, in the unit 2^exponent."""

    exponent: Tensor  # B
    scale: Tensor  # B: the largest value
    lost: Tensor  # B: of the operator, where underflow hides it from the products
    settled: Tensor  # B: these are the values that were asked for, as far as a second trial can tell

    @classmethod
    def together(cls, parts: Sequence[Ground]) -> Ground:
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def stated(
        self, values: Tensor, residuals: Tensor, tolerance: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values, residuals and `converged` (B, k) as the user gets them, in the operator's type.

        What that type cannot hold of a value is a part of its residual: below the smallest normal number it loses
        digits, above the largest all of them. A residual is rounded up.
        """
        result = scaled(values, self.exponent).to(dtype)
        missing = (scaled(result.double(), -self.exponent) - values).abs()
        residuals = residuals + torch.where(missing <= torch.finfo(dtype).eps * values.abs(), 0.0, missing)
        stated = scaled(residuals, self.exponent).to(dtype)
        stated = torch.where(residuals > 0, stated.clamp_min(smallest(dtype)), stated)
        lost, scale, settled = (part.to(values.device)[:, None] for part in (self.lost, self.scale, self.settled))
        return result, stated, settled & (residuals + lost <= tolerance * scale)


def default_tolerance(dtype: torch.dtype) -> float:
    """Of a residual, relative to the largest value: 4e-11 in float64, 2e-5 in float32."""
    return torch.finfo(dtype).eps ** (2 / 3)


def check_options(
    operator: Operator,
    k: int,
    which: str,
    known: Sequence[str],
    tol: float | None,
    block: int | None,
    max_products: int | None,
    route: str | None,
) -> None:
    _, m, n = operator.shape
    if not 1 <= k <= min(m, n):
        raise InputError(
            f"{operator.name} of shape {operator.shape} has {min(m, n)} values a sample: expected k from 1 to "
            f"{min(m, n)}, got {k}"
        )
    if which not in known:
        raise InputError(f"expected which to be one of {', '.join(known)}, got {which!r}")
    if route not in (None, "dense", "iterative"):
        raise InputError(f"expected route to be None, 'dense' or 'iterative', got {route!r}")
    if tol is not None and not 0 <= tol < 1:
        raise InputError(f"expected a tolerance relative to the largest value, from 0 to 1, got {tol}")
    if block is not None and block < 1:
        raise InputError(f"expected a block of at least one vector, got {block}")
    if max_products is not None and max_products < 1:
        raise InputError(f"expected at least one product a sample, got max_products={max_products}")
    if operator.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{operator.name} is {operator.dtype}; its spectrum needs float32 or float64")


def check_finite(product: Tensor, operator: Operator, samples: Sequence[int]) -> None:
    finite = product.isfinite().flatten(1).all(1)  # B
    if not finite.all():
        bad = [sample for sample, good in zip(samples, finite.tolist(), strict=True) if not good]
        raise InputError(
            f"products of {operator.name} of shape {operator.shape} are NaN or infinite for samples {bad}; "
            "look for NaN, infinite or overflowing weights and activations there"
        )


def check_adjoint(found: Tensor, expected: Tensor, operator: Operator, scale: Tensor) -> None:
    """Entries (B, p, b) that the operator and its transpose must agree on, at a scale (B)."""
    error = (found - expected).abs().flatten(1).amax(1)  # B
    if (error > ADJOINT_TOLERANCE * scale).any():
        raise InputError(
            f"{operator.name} of shape {operator.shape}: a product and the transposed product differ by "
            f"{error.max().item():.1e} where they must agree; the operator is not symmetric, or its rmatmat is not the "
            "transpose of its matmat"
        )


def fixed_signs(vectors: Tensor) -> Tensor:
    """+1 or -1 for each vector of (B, n, k), as (B, 1, k), that makes its largest entry positive: the first of those
    within 1 % of the largest, so that rounding does not decide between equals."""
    magnitude = vectors.abs()
    first = (magnitude >= TIE * magnitude.amax(1, keepdim=True)).to(torch.uint8).argmax(1, keepdim=True)  # B, 1, k
    return torch.where(vectors.gather(1, first) < 0, -1.0, 1.0).to(vectors.dtype)


def orthonormalise(
    block: Tensor, basis: Tensor, scale: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """block = basis C + Q R with orthonormal [basis, Q]: (Q, C, R) of shapes (B, n, w), (B, p, b), (w, b).

    w is b, or what the space has left. Columns that are zero to rounding at `scale` (B) give random columns of Q.
    Cost: 4 n p b operations a pass, two passes unless vectors are nearly dependent.
    """
    batch, size, width = block.shape
    left = size - basis.shape[2]
    if left < width:
        rest = random_block(size, left, generator, block).expand(batch, size, left)
        if left:
            rest, _, _ = orthonormalise(rest, basis, torch.ones_like(scale), generator)
        return rest, basis.mT @ block, rest.mT @ block
    Q, C = block, torch.zeros(batch, basis.shape[2], width, dtype=block.dtype, device=block.device)
    R = torch.eye(width, dtype=block.dtype, device=block.device).expand(batch, width, width)
    for attempt in range(6):
        inside = basis.mT @ Q  # B, p, b
        Q, triangle, lost = _gram_schmidt(Q - basis @ inside, scale, generator)
        C, R = C + inside @ R, triangle @ R
        if attempt and not lost:
            break
        scale = torch.ones_like(scale)
    return Q, C, R


def _gram_schmidt(block: Tensor, scale: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, bool]:
    """Q, R of a block, and whether a column lost so much that the block has to be orthogonalised again."""
    batch, size, width = block.shape
    Q, R = torch.empty_like(block), torch.zeros(batch, width, width, dtype=block.dtype, device=block.device)
    threshold = (10 * torch.finfo(block.dtype).eps * scale)[:, None, None]
    for j in range(width):
        column, done = block[:, :, j : j + 1], Q[:, :, :j]
        inside = done.mT @ column  # B, j, 1
        column = column - done @ inside
        R[:, :j, j : j + 1] = inside
        norm = torch.linalg.vector_norm(column, dim=1, keepdim=True)  # B, 1, 1
        zero = norm <= threshold
        if zero.any():
            fresh = random_block(size, 1, generator, block).expand(batch, size, 1)
            fresh = fresh - done @ (done.mT @ fresh)
            fresh = fresh / torch.linalg.vector_norm(fresh, dim=1, keepdim=True)
            column = torch.where(zero, fresh, column / torch.where(zero, 1.0, norm))
        else:
            column = column / norm
        Q[:, :, j : j + 1], R[:, j : j + 1, j : j + 1] = column, torch.where(zero, 0.0, norm)
    lost = R.diagonal(dim1=1, dim2=2) < 0.7 * scale[:, None]
    return Q, R, bool(lost.any())


def rotate(basis: Tensor, vectors: Tensor) -> Tensor:
    """basis @ vectors, orthonormal again to rounding: (3 - Q^T Q) / 2 squares what a restart adds to the error."""
    Q = basis @ vectors  # B, n, k
    return Q @ (1.5 * torch.eye(Q.shape[2], dtype=Q.dtype, device=Q.device) - 0.5 * (Q.mT @ Q))


def random_block(size: int, width: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """(1, size, width): the same for every sample, and on every device, so that a sample's result is its own."""
    return normal((1, size, width), generator, like.dtype, like.device)


class Krylov(ABC):
    """The bases of some samples, in a unit of each sample's own; a subclass says how they grow and how the projected
    matrix is decomposed."""

    sides = 2  # 1 where the operator is its own transpose

    def __init__(self, operator: Operator, block: int, seed: int) -> None:
        self.block = block
        self.generator = random_numbers("probes", seed)
        batch = operator.shape[0]
        self.scale = torch.zeros(batch, dtype=operator.dtype, device=operator.device)  # B: the largest value seen
        self.whole = InUnit.of(operator, *self._probes(operator, seed))
        self.settled = torch.zeros(batch, dtype=torch.bool, device=operator.device)  # B: tried once more, and stood
        self.products, self.iterations = self.whole.products, [0] * batch

    def _probes(self, operator: Operator, seed: int) -> Iterator[Tensor]:
        """Vectors of length near 1 for the products that find the unit, one block per side."""
        generator = random_numbers("unit", seed)
        for size in (operator.shape[2], operator.shape[1])[: self.sides]:
            yield random_block(size, BLOCK, generator, self.scale).expand(operator.shape[0], -1, -1) / size**0.5

    def begin(self, samples: Sequence[int], values: Tensor, left: Tensor, right: Tensor) -> None:
        """Start from Ritz triplets (B, k), (B, m, k), (B, n, k), none at first, and a random block."""
        self.samples, self.operator = list(samples), self.whole.take(samples)
        self.first_round = not values.shape[1]
        self.left, self.right, self.projected = left, right, torch.diag_embed(values)
        start = random_block(right.shape[1], self.block, self.generator, right).expand(len(samples), -1, -1)
        self.next, _, _ = orthonormalise(start, right, self.scale.new_ones(len(samples)), self.generator)
        self.coupling = torch.zeros(
            len(samples), self.next.shape[2], right.shape[2], dtype=right.dtype, device=right.device
        )

    @property
    def size(self) -> int:
        return self.right.shape[2]

    @property
    def ground(self) -> Ground:
        return Ground(self.whole.exponent, self.scale.double(), MARGIN * self.whole.lost, self.settled)

    @abstractmethod
    def expand(self) -> None:
        """Take the next block into the bases."""

    @abstractmethod
    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values (B, p), wanted ones first, and the left and right vectors (B, p, p) of the projected matrix."""

    def estimates(self, values: Tensor, left: Tensor) -> Tensor:
        """The residuals (B, p) of Ritz triplets: |K x|."""
        return torch.linalg.vector_norm(self.coupling @ left, dim=1)

    def restart(self, stay: Sequence[int], values: Tensor, left: Tensor, right: Tensor) -> None:
        """Go on with some of the samples (by position) from the first Ritz vectors."""
        self.samples = [self.samples[position] for position in stay]
        if stay and len(stay) < len(self.next):
            self.operator = self.whole.take(self.samples)
        self.left, self.right = rotate(self.left[stay], left[stay]), rotate(self.right[stay], right[stay])
        self.next, self.coupling = self.next[stay], self.coupling[stay] @ left[stay]
        self.projected = torch.diag_embed(values[stay])

    def count_step(self) -> None:
        for sample in self.samples:
            self.iterations[sample] += 1

    def multiply(self, block: Tensor, transposed: bool = False) -> Tensor:
        product = self.operator.rmatmat(block) if transposed else self.operator.matmat(block)
        check_finite(product, self.operator, self.samples)
        norms = torch.linalg.vector_norm(product, dim=1).amax(1)  # B
        self.scale[self.samples] = torch.maximum(self.scale[self.samples], norms)
        for sample in self.samples:
            self.products[sample] += block.shape[2]
        return product


def iterate(krylov: Krylov, k: int, sizes: Plan, tolerance: float, budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values (B, k) and left and right vectors of every sample, converged or at the end of its products."""
    batch, m, n = krylov.whole.shape
    values, left, right = (krylov.scale.new_zeros(batch, *shape) for shape in ((k,), (m, k), (n, k)))
    inner = max(tolerance / 4, 4 * torch.finfo(values.dtype).eps)
    samples, kept = list(range(batch)), 0
    while samples:  # a round: the first finds the values, the others try them
        krylov.begin(samples, values[samples, :kept], left[samples, :, :kept], right[samples, :, :kept])
        again: list[int] = []
        while krylov.samples:
            while krylov.size < sizes.subspace:
                krylov.expand()
            ritz, x, y = krylov.decompose()  # B, p  B, p, p  B, p, p
            now, complete = krylov.samples, krylov.size == min(m, n)
            krylov.scale[now] = torch.maximum(krylov.scale[now], ritz.abs().amax(1))
            scale = krylov.scale[now, None]  # B, 1
            residuals = krylov.estimates(ritz, x)  # B, p
            fine = (residuals[:, :k] <= inner * scale).all(1)
            same = ((ritz[:, :k] - values[now]).abs() <= tolerance * scale).all(1)
            behind = fine if complete else residuals[:, k] <= (ritz[:, k - 1] - ritz[:, k]).abs() + inner * scale[:, 0]
            spent = torch.tensor([krylov.products[sample] >= budget for sample in now], device=fine.device)
            krylov.settled[now] = settled = (fine & same & behind & (kept > 0)) | complete
            over = spent | settled
            retry = ~over & fine & ~(same & (kept > 0))
            leave = (over | retry).nonzero()[:, 0].tolist()
            if leave:
                gone = [now[position] for position in leave]
                values[gone] = ritz[leave, :k]
                left[gone] = rotate(krylov.left[leave], x[leave, :, :k])
                right[gone] = rotate(krylov.right[leave], y[leave, :, :k])
            again += [now[position] for position in retry.nonzero()[:, 0].tolist()]
            stay = [position for position in range(len(now)) if position not in leave]
            keep = sizes.keep
            krylov.restart(stay, ritz[:, :keep], x[:, :, :keep], y[:, :, :keep])
        samples, kept = sorted(again), k
    return values, left, right
