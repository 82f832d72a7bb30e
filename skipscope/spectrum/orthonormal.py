"""Orthonormal vectors, and their signs.

Vectors are rows here, (B, vectors, n): the entries of a vector lie side by side in memory, and so do those of the first
vectors of a longer buffer. Products with a basis that lies like this take a third to a tenth of the time that they take
with columns, and a basis grows without being copied.

Orthogonality is full, by block Gram-Schmidt repeated until nothing is lost ("twice is enough", Giraud, Langou,
Rozloznik, van den Eshof 2005). A recurrence knows most coefficients beforehand; what is left after these are taken off
is rounding, which a single pass over the basis removes (Paige; Simon 1984). Within a block the vectors become
orthonormal by the Cholesky factor of their Gram matrix (Yamamoto, Nakatsukasa, Yanagisawa and Fukaya 2015), one after
another where they are nearly dependent. A vector that depends on the others is replaced by a random one, with a zero in
the coefficients, so that an exhausted Krylov space goes on.

What is small, coefficients and the matrices of a block, is on the CPU in float64. A GPU has to finish all that it was
given before it answers, and to start an operation there takes as long as a small one takes here: so it is asked once in
a pass, for everything, or once after many passes (`orthonormalise_unasked`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from skipscope.numerics import normal

EQUALLY_LARGE = 0.99  # of the largest entry of a vector: which of two such is the larger, rounding would decide
KEPT = 0.1  # of a vector's length at least, or it is orthogonalised again: its error is up to 1 / KEPT^2 rounding units
DEPENDENT = 1e-2  # of a vector's length is what the others of its block leave of it: too little for a Gram matrix
MOST_PASSES = 6


class Basis:
    """Rows in a buffer that is filled from the front."""

    def __init__(self, rows: Tensor, room: int) -> None:
        """rows: (B, p, n) to begin with; room: for so many at most."""
        batch, self.count, size = rows.shape
        self.buffer = rows.new_empty(batch, max(room, self.count), size)
        self.rows.copy_(rows)

    @property
    def rows(self) -> Tensor:  # B, p, n
        return self.buffer[:, : self.count]

    def reserve(self, room: int) -> None:
        batch, reserved, size = self.buffer.shape
        if room > reserved:
            self.buffer = torch.cat([self.rows, self.buffer.new_empty(batch, room - self.count, size)], 1)

    def append(self, block: Tensor) -> None:
        room = self.count + block.shape[1]
        self.reserve(room)
        self.buffer[:, self.count : room] = block
        self.count = room

    def rotated(self, samples: Sequence[int], vectors: Tensor) -> Tensor:
        """For some of the samples, by position, combinations (B, p, k) of the rows: (B, k, n)."""
        return rotate(self.rows if len(samples) == len(self.buffer) else self.rows[list(samples)], vectors)

    def become(self, rows: Tensor) -> None:
        """Other rows, for fewer samples perhaps."""
        if len(rows) != len(self.buffer):
            self.buffer = rows.new_empty(len(rows), *self.buffer.shape[1:])
        self.count = rows.shape[1]
        self.rows.copy_(rows)


def orthonormalise(
    block: Tensor, basis: Tensor, scale: Tensor, generator: torch.Generator, expected: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """block = C^T basis + R^T Q with orthonormal rows [basis, Q]: (Q, C, R) of shapes (B, w, n), (B, p, b), (B, w, b),
    and the larger of `scale` and the block's longest vector (B). All but Q on the CPU in float64.

    w is b, or what the space has left. Vectors that are zero to rounding at that scale give random rows of Q.
    expected: the coefficients (B, q, b) of the last q rows of the basis, known but for rounding where all others are
    zero.
    Cost: 4 n p b operations per pass; a second one where the first takes off most of a vector, which it does not where
    coefficients are expected, unless vectors are nearly dependent.
    """
    batch, width, size = block.shape
    left = size - basis.shape[1]
    if left < width:
        rest = random_block(size, left, generator, block).expand(batch, left, size)
        if left:
            rest, *_ = orthonormalise(rest, basis, torch.ones_like(scale), generator)
        C, R, norms = on_cpu(basis @ block.mT, rest @ block.mT, torch.linalg.vector_norm(block, dim=2))
        return rest, C, R, torch.maximum(scale, norms.amax(1))
    outside, small = _beside_known(block, basis, expected)
    found = Coefficients(on_cpu(*small), scale, block.dtype)
    C, scale = found.C, found.scale
    Q, R, kept = _orthonormal_rows(outside, found, generator)
    for _ in range(MOST_PASSES - 1):
        if kept:
            break
        outside, small = _beside(Q, basis)
        found = Coefficients(on_cpu(*small), torch.ones_like(scale), block.dtype)
        Q, triangle, kept = _orthonormal_rows(outside, found, generator)
        C, R = C + found.C @ R, triangle @ R
    return Q, C, R, scale


def orthonormalise_unasked(block: Tensor, basis: Tensor, expected: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The first pass of `orthonormalise` without a question to the device: Q, R^T (B, b, b), and what `Coefficients`
    will tell from, once it is on the CPU, among it whether Q is what it should be."""
    outside, small = _beside_known(block, basis, expected)
    lower, _ = torch.linalg.cholesky_ex(small[1])
    return _inverse(lower).to(block.dtype) @ outside, lower.to(block.dtype), small


def on_cpu(*parts: Tensor) -> list[Tensor]:
    """Small tensors (B, ...) in float64 on the CPU, in one transfer."""
    if all(part.device.type == "cpu" for part in parts):
        return [part.double() for part in parts]
    packed = torch.cat([part.flatten(1) for part in parts], 1).cpu().double()
    sizes = [part[0].numel() for part in parts]
    return [piece.view(part.shape) for piece, part in zip(packed.split(sizes, 1), parts, strict=True)]


class Coefficients:
    """What a pass over a basis says, from the small tensors of that pass, on the CPU in float64."""

    def __init__(self, small: Sequence[Tensor], scale: Tensor, dtype: torch.dtype) -> None:
        """scale (B,): at which vectors are zero to rounding, or that of the block where it is larger. dtype: of the
        vectors."""
        inside, gram, self._before, *known = small
        self.C = inside.mT  # B, p, b
        if known:
            norms, *expected = known
            scale = torch.maximum(scale, norms.amax(1))
            for coefficients in expected:
                self.C[:, self.C.shape[1] - coefficients.shape[1] :] += coefficients
        self.scale = scale
        lower, failed = torch.linalg.cholesky_ex(gram)
        self.R, self.inverse = lower.mT, _inverse(lower)
        lengths, pivots = gram.diagonal(dim1=1, dim2=2).sqrt(), lower.diagonal(dim1=1, dim2=2)
        large = (pivots > 10 * torch.finfo(dtype).eps * scale[:, None]).all(1)  # B
        independent = (failed == 0) & large & (_dependence(self.inverse, lengths) <= 1 / DEPENDENT)
        self.independent = bool(independent.all())

    def is_kept(self, inverse: Tensor | None = None) -> bool:
        """Whether enough is left of the lengths from before the basis was taken off."""
        inverse = self.inverse if inverse is None else inverse
        return bool((_dependence(inverse, self._before) <= 1 / KEPT).all())


def _beside_known(block: Tensor, basis: Tensor, expected: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    norms = torch.linalg.vector_norm(block, dim=2)  # B, b
    if expected is None:
        outside, small = _beside(block, basis)
        return outside, [*small, norms]
    last = basis[:, basis.shape[1] - expected.shape[1] :]
    outside, small = _beside(torch.baddbmm(block, expected.mT, last, alpha=-1), basis)
    return outside, [*small, norms, expected]


def _beside(Q: Tensor, basis: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What a basis leaves of a block (B, b, n); the coefficients (B, b, p) of what it takes, the Gram matrix (B, b, b)
    of what it leaves, the lengths (B, b) from before."""
    inside = Q @ basis.mT  # on a GPU in a fifth of the time of its transpose
    outside = torch.baddbmm(Q, inside, basis, alpha=-1)
    wide = outside.double()  # squares lose half of the digits
    return outside, [inside, wide @ wide.mT, torch.linalg.vector_norm(Q, dim=2)]


def _orthonormal_rows(block: Tensor, found: Coefficients, generator: torch.Generator) -> tuple[Tensor, Tensor, bool]:
    """block = R^T Q: Q (B, b, n), R (B, b, b), and whether enough is left of the lengths from before."""
    if found.independent:
        return found.inverse.to(block) @ block, found.R, found.is_kept()
    Q, R = _one_after_another(block, found.scale.to(block), generator)
    (R,) = on_cpu(R)
    return Q, R, found.is_kept(_inverse(R.mT))


def _inverse(lower: Tensor) -> Tensor:
    unit = torch.eye(lower.shape[1], dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(lower, unit, upper=False)


def _dependence(inverse: Tensor, lengths: Tensor) -> Tensor:
    """B: the largest entry of R^-T for vectors of length 1. On its diagonal is 1 over what the vectors before leave of
    each; below it is what a chain loses in which each is only somewhat near the next. NaN or infinite where a random
    vector replaced one."""
    return (inverse * lengths[:, None]).abs().amax((1, 2))


def _one_after_another(block: Tensor, scale: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    batch, width, size = block.shape
    Q, R = torch.empty_like(block), torch.zeros(batch, width, width, dtype=block.dtype, device=block.device)
    threshold = (10 * torch.finfo(block.dtype).eps * scale)[:, None, None]
    for j in range(width):
        vector, done = block[:, j : j + 1], Q[:, :j]
        inside = vector @ done.mT  # B, 1, j
        vector = vector - inside @ done
        R[:, :j, j : j + 1] = inside.mT
        norm = torch.linalg.vector_norm(vector, dim=2, keepdim=True)  # B, 1, 1
        zero = norm <= threshold
        if zero.any():
            fresh = random_block(size, 1, generator, block).expand(batch, 1, size)
            fresh = fresh - (fresh @ done.mT) @ done
            fresh = fresh / torch.linalg.vector_norm(fresh, dim=2, keepdim=True)
            vector = torch.where(zero, fresh, vector / torch.where(zero, 1.0, norm))
        else:
            vector = vector / norm
        Q[:, j : j + 1], R[:, j : j + 1, j : j + 1] = vector, torch.where(zero, 0.0, norm)
    return Q, R


def rotate(basis: Tensor, vectors: Tensor) -> Tensor:
    """Combinations (B, p, k) of the rows of a basis (B, p, n), orthonormal again to rounding: (3 - Q Q^T) / 2 squares
    what a restart adds to the error."""
    Q = vectors.to(basis).mT @ basis  # B, k, n
    return (1.5 * torch.eye(Q.shape[1], dtype=Q.dtype, device=Q.device) - 0.5 * (Q @ Q.mT)) @ Q


def random_block(size: int, width: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """(1, width, size): the same for every sample, and on every device, so that a sample's result is its own."""
    return normal((1, size, width), generator, like.dtype, like.device).mT


def fixed_signs(vectors: Tensor) -> Tensor:
    """+1 or -1 for each vector of (B, n, k), as (B, 1, k), that makes its largest entry positive: the first of those
    within 1 % of the largest, so that rounding does not decide between equals."""
    magnitude = vectors.abs()
    large = magnitude >= EQUALLY_LARGE * magnitude.amax(1, keepdim=True)
    first = large.to(torch.uint8).argmax(1, keepdim=True)  # B, 1, k
    return torch.where(vectors.gather(1, first) < 0, -1.0, 1.0).to(vectors.dtype)
