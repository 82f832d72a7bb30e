"""What the two iterations share: bases that grow by blocks, and thick restarts.

Both Golub-Kahan and Lanczos keep orthonormal bases U (m, p) and V (n, p) (one and the same basis when the operator is
symmetric), the projected matrix P = U^T A V (p, p), a block N of vectors that come next, and the relations

    A V = U P,        A^T U = V P^T + N K,        V^T N = 0,

from which a Ritz triplet (U x, s, V y) of P has the residual |K x|, known without another product. They also say what
the next products look like in the bases: U^T A N = K^T, of which only the last block is not zero but after a restart.
The vectors themselves are stored as rows (`orthonormal.Basis`), where the operator is; what is small, such as P and K,
is on the CPU in float64.

A *cycle* widens the bases block by block to a fixed size; a *thick restart* (Wu and Simon 2000; Baglama and Reichel
2005) rotates them to the wanted Ritz vectors and a few more, with the relations kept. When to stop: `rounds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from skipscope.cores import one_thread
from skipscope.linear.operator import Operator
from skipscope.numerics import normal, random_numbers
from skipscope.spectrum.checks import check_finite
from skipscope.spectrum.orthonormal import Basis, orthonormalise, random_block, rotate
from skipscope.spectrum.plan import BLOCK
from skipscope.spectrum.scale import MARGIN, Accuracy, InUnit
from skipscope.spectrum.unseen import angle


class Krylov(ABC):
    """The bases of some samples, in a unit of each sample's own; a subclass says how they grow and how the projected
    matrix is decomposed."""

    sides = 2  # 1 where the operator is its own transpose

    def __init__(self, operator: Operator, block: int, seed: int) -> None:
        self.block = block
        self.generator = random_numbers("probes", seed)
        batch = operator.shape[0]
        self.scale = torch.zeros(batch, dtype=torch.float64, device="cpu")  # B: the largest value seen
        self.whole = InUnit.of(operator, *self._probes(operator, seed))
        self.settled = torch.zeros(batch, dtype=torch.bool, device="cpu")  # B: nothing was missed
        self.missed = torch.full((batch,), torch.nan, dtype=torch.float64, device="cpu")  # B: with what probability
        self.products, self.iterations = self.whole.products, [0] * batch

    def _probes(self, operator: Operator, seed: int) -> Iterator[Tensor]:
        """Vectors of length near 1 for the products that find the unit, one block per side."""
        generator = random_numbers("unit", seed)
        for size in (operator.shape[2], operator.shape[1])[: self.sides]:
            vectors = normal((1, size, BLOCK), generator, operator.dtype, operator.device)
            yield vectors.expand(operator.shape[0], -1, -1) / size**0.5

    def begin(self, samples: Sequence[int], values: Tensor, left: Tensor, right: Tensor, room: int) -> None:
        """Start from Ritz triplets (B, w), (B, w, m), (B, w, n), none at first, and a random block. room: for so many
        vectors. The relations that the triplets had are dropped, so that the residuals of those that have not converged
        are not known any more."""
        self._set_samples(samples)
        self.operator = self.whole.go_on_with(samples)
        self.given, self.steps = values.shape[1], 0
        self.right, self.projected = Basis(right, room), torch.diag_embed(values)
        self.left = self.right if self.sides == 1 else Basis(left, room)
        start = random_block(right.shape[2], self.block, self.generator, right).expand(len(samples), -1, -1)
        self.next, *_ = orthonormalise(start, right, self.scale.new_ones(len(samples)), self.generator)
        self.coupling = self.scale.new_zeros(len(samples), self.next.shape[1], right.shape[1])
        self.linked: int | None = None  # vectors at the end of the basis that the coupling is of; not known yet

    @property
    def size(self) -> int:
        return self.right.count

    @property
    def expected(self) -> Tensor | None:
        """(B, q, b): U^T A N but for rounding, of the last q vectors, where the vectors are; None where the relations
        hold to a tolerance."""
        return None if self.linked is None else self.coupling[:, :, self.size - self.linked :].mT.to(self.next)

    @property
    def accuracy(self) -> Accuracy:
        return Accuracy(self.whole.exponent, self.scale, MARGIN * self.whole.lost, self.settled)

    @property
    def can_bound(self) -> bool:
        """Whether `bounds` would come near the values."""
        return True

    @property
    def rest(self) -> Tensor:
        """The projected matrix (B, q b, q b) of what has come since `begin`, beside what was given. Before a
        restart."""
        return self.projected[:, self.given :, self.given :]

    @property
    def complete(self) -> bool:
        """Whether the bases span everything."""
        return self.size == min(self.whole.shape[1:])

    @property
    def angle(self) -> float:
        """Of the random block that it began with (`unseen`)."""
        return angle(min(self.whole.shape[1:]), self.block)

    @abstractmethod
    def bounds(self, values: Tensor, coupling: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """What the ranks of all values are at most (B, more than w), the largest first; and of a rank (B,), how many
        steps from `begin` on it takes (B,) until nothing that was not given can be above it, as things look now.

        values (B, w), coupling (B, b, w): what was given to `begin`, with the K of its relations."""

    @abstractmethod
    def expand(self) -> None:
        """Take the next block into the bases."""

    def advance(self, steps: int) -> None:
        """Take so many blocks into the bases, or all that there are."""
        for _ in range(steps):
            if self.complete:
                break
            self.expand()

    @abstractmethod
    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values (B, p), wanted ones first, and the left and right vectors (B, p, p) of the projected matrix."""

    @abstractmethod
    def rank(self, values: Tensor) -> Tensor:
        """What values are put in order by: the wanted ones have the largest."""

    def estimates(self, values: Tensor, left: Tensor) -> Tensor:
        """The residuals (B, p) of Ritz triplets: |K x|."""
        return torch.linalg.vector_norm(self.coupling @ left, dim=1)

    def restart(self, stay: Sequence[int], values: Tensor, left: Tensor, right: Tensor) -> None:
        """Go on with some of the samples (by position) from the first Ritz vectors."""
        if len(stay) < len(self.next):
            self.only(stay)
            values, left, right = values[stay], left[stay], right[stay]
        if not stay:
            return
        if self.sides == 2:
            self.left.become(rotate(self.left.rows, left))
        self.right.become(rotate(self.right.rows, right))
        self.coupling, self.projected = self.coupling @ left, torch.diag_embed(values)
        self.linked = self.size

    def only(self, stay: Sequence[int]) -> None:
        """Go on as it is with some of the samples, by position."""
        if len(stay) == len(self.samples):  # a copy of the bases would double their memory
            return
        self._set_samples([self.samples[position] for position in stay])
        if not stay:
            return
        self.operator = self.whole.go_on_with(self.samples)
        self.next, self.coupling, self.projected = (
            numbers[stay] for numbers in (self.next, self.coupling, self.projected)
        )
        self.right.become(self.right.rows[stay])
        if self.sides == 2:
            self.left.become(self.left.rows[stay])

    def check(self) -> None:
        """Refuse products that are no numbers: they are in the projected matrix then."""
        check_finite(self.projected, self.operator, self.samples)

    def reserve(self, room: int) -> None:
        """For so many vectors."""
        self.right.reserve(room)
        self.left.reserve(room)

    def grown(self, coupling: Tensor) -> None:
        """The bases have taken in a block; coupling: (B, w, b) between that block and the next."""
        before = self.size - coupling.shape[2]
        self.coupling = torch.cat([coupling.new_zeros(*coupling.shape[:2], before), coupling], 2)
        self.linked = coupling.shape[2]
        self.steps += 1
        for sample in self.samples:
            self.iterations[sample] += 1

    def multiply(self, block: Tensor, transposed: bool = False) -> Tensor:
        """The products of the rows of a block (B, b, n), as rows (B, b, m)."""
        product = self.operator.rmatmat(block.mT) if transposed else self.operator.matmat(block.mT)
        for sample in self.samples:
            self.products[sample] += block.shape[1]
        return product.mT.contiguous()

    def orthonormalised(
        self, block: Tensor, basis: Basis, expected: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `orthonormalise`: products beside a basis, whose lengths say how large the operator is."""
        with self.few_threads():
            found = orthonormalise(block, basis.rows, self.scale[self._places], self.generator, expected)
        self.scale[self._places] = found[3]
        return found

    def few_threads(self) -> AbstractContextManager[None]:
        """Where the vectors are on a GPU, the CPU has what is small, and starts threads for longer than it takes."""
        return one_thread(self.whole.device.type != "cpu")

    def _set_samples(self, samples: Sequence[int]) -> None:
        self.samples = list(samples)
        self._places = torch.tensor(self.samples, dtype=torch.long, device="cpu")
