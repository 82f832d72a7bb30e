"""What the two iterations share: bases that grow by blocks, thick restarts and the stopping rule.

Both Golub-Kahan and Lanczos keep orthonormal bases U (m, p) and V (n, p) (one and the same basis when the operator is
symmetric), the projected matrix P = U^T A V (p, p), a block N of vectors that come next, and the relations

    A V = U P,        A^T U = V P^T + N K,        V^T N = 0,

from which a Ritz triplet (U x, s, V y) of P has the residual |K x|, known without another product. They also say what
the next products look like in the bases: U^T A N = K^T, of which only the last block is not zero but after a restart.
The vectors themselves are stored as rows (`orthonormal.Basis`).

A *cycle* widens the bases block by block to a fixed size; a *thick restart* (Wu and Simon 2000; Baglama and Reichel
2005) rotates them to the wanted Ritz vectors and a few more, with the relations kept.

A Krylov space holds no more copies of a repeated value than its block is wide. So values that have converged are tested
a second time: everything but their vectors is dropped, the iteration starts from a fresh random block, and it ends
when the same values are confirmed and the next one, seen from there, is known to a tenth of its distance to the last of
them. That takes a whole cycle at least: of n entries a fresh block has about 1 / sqrt(n) of a vector that was missed,
which has not come up after a few steps, while all else seems to hold. The next vector begins as small, and a missed one
grows faster; so where the next one is well known, a missed one would have come up. This is no proof: a random block can
have less of a vector than others. What has not been confirmed when the products are spent has not converged, however
small its residual: it is a triplet, but perhaps not the one that was asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from skipscope.cores import threads_for
from skipscope.linear.operator import Operator
from skipscope.numerics import random_numbers
from skipscope.spectrum.checks import check_finite
from skipscope.spectrum.orthonormal import Basis, orthonormalise, random_block
from skipscope.spectrum.plan import BLOCK, Costs
from skipscope.spectrum.scale import MARGIN, Accuracy, InUnit

WELL_KNOWN = 0.1  # of its distance to the last wanted value: up to so large a residual the next value is well known


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
        self.settled = torch.zeros(
            batch, dtype=torch.bool, device=operator.device
        )  # B: tested a second time, and confirmed
        self.products, self.iterations = self.whole.products, [0] * batch

    def _probes(self, operator: Operator, seed: int) -> Iterator[Tensor]:
        """Vectors of length near 1 for the products that find the unit, one block per side."""
        generator = random_numbers("unit", seed)
        for size in (operator.shape[2], operator.shape[1])[: self.sides]:
            yield random_block(size, BLOCK, generator, self.scale).mT.expand(operator.shape[0], -1, -1) / size**0.5

    def begin(self, samples: Sequence[int], values: Tensor, left: Tensor, right: Tensor, room: int) -> None:
        """Start from Ritz triplets (B, k), (B, k, m), (B, k, n), none at first, and a random block. room: for so many
        vectors."""
        self._set_samples(samples)
        self.operator = self.whole.go_on_with(samples)
        self.first_round = not values.shape[1]
        self.right, self.projected = Basis(right, room), torch.diag_embed(values)
        self.left = self.right if self.sides == 1 else Basis(left, room)
        start = random_block(right.shape[2], self.block, self.generator, right).expand(len(samples), -1, -1)
        self.next, _, _ = orthonormalise(start, right, self.scale.new_ones(len(samples)), self.generator)
        self.coupling = torch.zeros(
            len(samples), self.next.shape[1], right.shape[1], dtype=right.dtype, device=right.device
        )
        self.linked: int | None = None  # vectors at the end of the basis that the coupling is of; not known yet

    @property
    def size(self) -> int:
        return self.right.count

    @property
    def expected(self) -> Tensor | None:
        """(B, q, b): U^T A N but for rounding, of the last q vectors; None where the relations hold to a tolerance."""
        return None if self.linked is None else self.coupling[:, :, self.size - self.linked :].mT

    @property
    def accuracy(self) -> Accuracy:
        return Accuracy(self.whole.exponent, self.scale.double(), MARGIN * self.whole.lost, self.settled)

    @abstractmethod
    def expand(self) -> None:
        """Take the next block into the bases."""

    @abstractmethod
    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values (B, p), wanted ones first, and the left and right vectors (B, p, p) of the projected matrix."""

    def rank(self, values: Tensor) -> Tensor:
        """What values are put in order by."""
        return values

    def estimates(self, values: Tensor, left: Tensor) -> Tensor:
        """The residuals (B, p) of Ritz triplets: |K x|."""
        return torch.linalg.vector_norm(self.coupling @ left, dim=1)

    def restart(self, stay: Sequence[int], values: Tensor, left: Tensor, right: Tensor) -> None:
        """Go on with some of the samples (by position) from the first Ritz vectors."""
        fewer = len(stay) < len(self.next)
        self._set_samples([self.samples[position] for position in stay])
        if not stay:
            return
        if fewer:
            self.operator = self.whole.go_on_with(self.samples)
            values, left, right = values[stay], left[stay], right[stay]
            self.next, self.coupling = self.next[stay], self.coupling[stay]
        if self.sides == 2:
            self.left.become(self.left.rotated(stay, left))
        self.right.become(self.right.rotated(stay, right))
        self.coupling, self.projected = self.coupling @ left, torch.diag_embed(values)
        self.linked = self.size

    def grown(self, coupling: Tensor) -> None:
        """The bases have taken in a block; coupling: (B, w, b) between that block and the next."""
        before = self.size - coupling.shape[2]
        self.coupling = torch.cat([coupling.new_zeros(*coupling.shape[:2], before), coupling], 2)
        self.linked = coupling.shape[2]
        for sample in self.samples:
            self.iterations[sample] += 1

    def multiply(self, block: Tensor, transposed: bool = False) -> Tensor:
        """The products of the rows of a block (B, b, n), as rows."""
        product = self.operator.rmatmat(block.mT) if transposed else self.operator.matmat(block.mT)
        check_finite(product, self.operator, self.samples)
        rows = product.mT.contiguous()  # B, b, m
        largest = torch.maximum(self.scale[self.places], torch.linalg.vector_norm(rows, dim=2).amax(1))  # B
        self.scale[self.places] = largest
        for sample in self.samples:
            self.products[sample] += block.shape[1]
        return rows

    def _set_samples(self, samples: Sequence[int]) -> None:
        self.samples = list(samples)
        self.places = torch.tensor(self.samples, dtype=torch.long, device=self.scale.device)


def iterate(krylov: Krylov, k: int, sizes: Costs, tolerance: float, budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values (B, k) and left and right vectors (B, m, k) and (B, n, k) of every sample, converged or at the end of
    its products."""
    batch, m, n = krylov.whole.shape
    with threads_for(batch * max(m, n) * sizes.block, krylov.scale.device):
        return _iterate(krylov, k, sizes, tolerance, budget)


def _iterate(krylov: Krylov, k: int, sizes: Costs, tolerance: float, budget: int) -> tuple[Tensor, Tensor, Tensor]:
    batch, m, n = krylov.whole.shape
    values, left, right = (krylov.scale.new_zeros(batch, *shape) for shape in ((k,), (k, m), (k, n)))
    inner = max(tolerance / 4, 4 * torch.finfo(values.dtype).eps)
    samples, kept = list(range(batch)), 0
    while samples:  # a round: the first finds the values, the others try them
        room = sizes.subspace + sizes.block
        krylov.begin(samples, values[samples, :kept], left[samples, :kept], right[samples, :kept], room)
        again: list[int] = []
        while krylov.samples:
            while krylov.size < sizes.subspace:
                krylov.expand()
            ritz, x, y = krylov.decompose()  # B, p  B, p, p  B, p, p
            now, complete = krylov.samples, krylov.size == min(m, n)
            krylov.scale[now] = torch.maximum(krylov.scale[now], ritz.abs().amax(1))
            scale = krylov.scale[now, None]  # B, 1
            residuals = krylov.estimates(ritz, x)  # B, p
            converged = (residuals[:, :k] <= inner * scale).all(1)
            ranks = krylov.rank(ritz)
            same = ((ranks[:, :k] - krylov.rank(values[now])).abs() <= tolerance * scale).all(1)
            next_known = converged
            if not complete:
                distance = (ranks[:, k - 1] - ranks[:, k]).abs()
                next_known = residuals[:, k] <= WELL_KNOWN * distance + inner * scale[:, 0]
            spent = torch.tensor([krylov.products[sample] >= budget for sample in now], device=converged.device)
            krylov.settled[now] = settled = (converged & same & next_known & (kept > 0)) | complete
            over = spent | settled
            retry = ~over & converged & ~(same & (kept > 0))
            leave = (over | retry).nonzero()[:, 0].tolist()
            if leave:
                gone = [now[position] for position in leave]
                values[gone] = ritz[leave, :k]
                right[gone] = krylov.right.rotated(leave, y[leave, :, :k])
                left[gone] = right[gone] if krylov.sides == 1 else krylov.left.rotated(leave, x[leave, :, :k])
            again += [now[position] for position in retry.nonzero()[:, 0].tolist()]
            stay = [position for position in range(len(now)) if position not in leave]
            keep = sizes.keep
            krylov.restart(stay, ritz[:, :keep], x[:, :, :keep], y[:, :, :keep])
        samples, kept = sorted(again), k
    return values, left.mT, right.mT
