"""How far a Jacobian is from diagonal in the singular vectors of another, and that of every pair of units.

With U_j, V_j the K leading left and right singular vectors of J_j and S_i the K leading singular values of J_i:

coupling    m_K = | |G| - diag(S_i) |_F / |S_i| of the grid G = U_j^T J_i V_j, K x K, as `alignment` has it
chance      the mean of m_K with random orthonormal vectors in the place of U_j and V_j. As J_i with random rotations on
            both sides has the same law, this is the level of Jacobians that share their spectra and nothing else.
cosines     of principal angles: the singular values of U_i^T U_j, which do not depend on the choice of vectors where
            singular values are equal

`pairs` needs products and no decompositions: for one unit i, J_i is applied in one block to the right vectors of all
units j whose states fit, to their left vectors where that is a product too, and to random orthonormal vectors; from the
left come the vectors of the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.linear import Operator
from skipscope.measure.selection import filled
from skipscope.numerics import normal, random_numbers
from skipscope.spectrum import SVD
from skipscope.spectrum.assembly import svdvals
from skipscope.spectrum.plan import Route
from skipscope.trace import Point, Unit
from skipscope.trace.trunk import Part

WAYS = ("ujv", "vju")
MORE = 5  # values after the first K or C, for the picture of the gap


def coupling(grid: Tensor, values: Tensor, counts: Tensor, *, signed: bool = False) -> Tensor:
    """m_K of the first `counts` rows, columns and values; NaN where that is none.

    grid: (..., K, K), values: (..., K), counts: (...) -> (...), all broadcast.
    """
    inside = _leading(values.shape[-1], counts)  # ..., K
    diagonal = torch.diag_embed(torch.where(inside, values, 0.0))
    panel = torch.where(inside[..., :, None] & inside[..., None, :], grid if signed else grid.abs(), 0.0)
    return torch.linalg.matrix_norm(panel - diagonal) / torch.linalg.matrix_norm(diagonal)


def chance_table(grids: Tensor, values: Tensor, *, signed: bool = False) -> tuple[Tensor, Tensor]:
    """Mean m_K over random draws and its standard error, for every K: (B, draws, K, K), (B, K) -> (B, K), (B, K)."""
    columns = []
    for count in range(1, values.shape[-1] + 1):
        counts = torch.full(grids.shape[:2], count, device=grids.device)
        columns.append(coupling(grids, values[:, None], counts, signed=signed))
    drawn = torch.stack(columns, -1)  # B, draws, K
    return drawn.mean(1), drawn.std(1) / drawn.shape[1] ** 0.5


def cosines(first: Tensor, second: Tensor, first_counts: Tensor, second_counts: Tensor) -> Tensor:
    """Descending; of the first vectors of each, as many as the counts say, NaN after the smaller number.

    (..., n, K), (..., n, K), (...), (...) -> (..., K), all broadcast.
    """
    K = first.shape[-1]
    kept = [
        torch.where(_leading(K, counts)[..., None, :], vectors, 0.0)
        for vectors, counts in ((first, first_counts), (second, second_counts))
    ]
    found = svdvals(kept[0].mT @ kept[1])  # ..., K
    return torch.where(_leading(K, torch.minimum(first_counts, second_counts)), found, float("nan"))


def repeated(values: Tensor, residuals: Tensor, near: float) -> Tensor:
    """Whether a value has a neighbour within `near` times the largest, or within the two residuals: (B, k) -> (B, k).

    The vectors of such values are any basis of one space.
    """
    gaps = values[:, :-1] - values[:, 1:]
    close = gaps <= torch.maximum(near * values[:, :1], residuals[:, :-1] + residuals[:, 1:])
    edge = close.new_zeros(len(close), 1)
    return torch.cat([close, edge], 1) | torch.cat([edge, close], 1)


def random_frames(draws: int, size: int, k: int, generator: torch.Generator) -> Tensor:
    """Orthonormal columns, uniformly distributed: (draws, size, k) in float64 on the CPU.

    QR of Gaussian matrices is uniform once the diagonal of R is positive (Mezzadri 2007).
    """
    Q, R = torch.linalg.qr(normal((draws, size, k), generator))
    return Q * R.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]


def _leading(K: int, counts: Tensor) -> Tensor:
    """(...) -> (..., K): True for the first `counts` places."""
    return torch.arange(K, device=counts.device) < counts[..., None]


# -- of all pairs of units


@dataclass(frozen=True)
class Options:
    """What is measured of every unit, with the meanings that `alignment` gives them."""

    k: int
    classes: int
    tail: bool
    tokens: tuple[Any, Any] | None
    grids: bool
    chance: int
    route: Route
    tolerance: float | None
    max_products: int | None
    seed: int

    @property
    def kept(self) -> int:
        return max(self.k, self.classes) + MORE


@dataclass(frozen=True)
class Member:
    """A unit and which of its Jacobians is measured, between states of which forms."""

    unit: Unit
    part: Part
    entry: tuple[int, ...]
    exit: tuple[int, ...]

    def jacobian(self, point: Point, samples: Sequence[int], options: Options) -> Operator:
        tail = options.tail and self.part == "branch"
        # Between tokens in float64 at once: the path of a token is compared with the whole sequence in that type.
        dtype = torch.float64 if options.tokens is not None and self.unit.in_any_type else None
        whole: Operator = self.unit.jacobian(point, of=self.part, tail=tail, tokens=options.tokens, dtype=dtype)
        return (whole if len(samples) == whole.shape[0] else whole.take(samples)).double()

    def fits(self, other: Member, way: str) -> bool:
        """Whether U_j^T J_i V_j, or V_j^T J_i U_j, is a product of matrices on the same states."""
        theirs = (other.entry, other.exit) if way == "ujv" else (other.exit, other.entry)
        return (self.entry, self.exit) == theirs


@dataclass(frozen=True)
class Frame:
    """The leading triplets of one unit, filled up with zeros to the number of vectors that all units have."""

    U: Tensor  # B, m, K
    S: Tensor  # B, K
    V: Tensor  # B, n, K
    counts: Tensor  # B: how many of them are above zero for certain
    size: int  # how many there are


def frame(triplets: SVD, width: int) -> Frame:
    size = min(width, triplets.S.shape[1])
    U, S, V = (filled(some[..., :size], width, 0.0) for some in (triplets.U, triplets.S, triplets.V))
    return Frame(U, S, V, triplets.counted.clamp(max=size), size)


def pairs(
    J: Operator,
    place: int,
    members: Sequence[Member],
    frames: Sequence[Frame],
    samples: Sequence[int],
    options: Options,
) -> dict[str, Tensor]:
    """Of one unit's Jacobian with the vectors of all units: (other, B, ...), NaN where shapes differ."""
    own, member, count = frames[place], members[place], len(members)
    usable = torch.minimum(own.counts[:, None], torch.stack([other.counts for other in frames], 1))  # B, other
    fitting = {way: [j for j in range(count) if member.fits(members[j], way)] for way in WAYS}
    left = [*(frames[j].U for j in fitting["ujv"]), *(frames[j].V for j in fitting["vju"])]
    right = [*(frames[j].V for j in fitting["ujv"]), *(frames[j].U for j in fitting["vju"])]
    for frames_of, side, size in ((left, "exit", J.shape[1]), (right, "entry", J.shape[2])):
        frames_of += _random(side, member.unit.name, size, own, samples, options)
    images = _images(J, torch.cat(right, 2)).unflatten(2, (len(right), -1)).transpose(1, 2)  # B, blocks, m, K
    grids = torch.stack(left, 1).mT @ images  # B, blocks, K, K
    found: dict[str, Tensor] = {}
    start = 0
    for way in WAYS:
        stop = start + len(fitting[way])
        grid, others = grids[:, start:stop], fitting[way]
        for signed in (False, True):
            value = coupling(grid, own.S[:, None], usable[:, others], signed=signed)
            found[f"coupling_{way}{'_signed' if signed else ''}"] = _among(value, others, count)
        if options.grids:
            shown = grid.clone()
            shown[..., own.size :, :] = shown[..., own.size :] = float("nan")
            found[way] = _among(shown.float(), others, count)
        start = stop
    if options.chance:
        either = sorted({*fitting["ujv"], *fitting["vju"]})
        counts = usable[:, either]
        for signed in (False, True):
            tables = chance_table(grids[:, start:], own.S, signed=signed)  # B, K
            for table, error in zip(tables, ("", "_error"), strict=True):
                at = torch.where(counts > 0, table.gather(1, (counts - 1).clamp(min=0)), float("nan"))
                found[f"chance{'_signed' if signed else ''}{error}"] = _among(at, either, count)
    for name, side, end in (("left_cosine", "U", "exit"), ("right_cosine", "V", "entry")):
        others = [j for j in range(count) if getattr(members[j], end) == getattr(member, end)]
        theirs = torch.stack([getattr(frames[j], side) for j in others], 1)  # B, others, n, K
        known = torch.stack([frames[j].counts for j in others], 1)
        found[name] = _among(cosines(getattr(own, side)[:, None], theirs, own.counts[:, None], known), others, count)
    return found


def _images(J: Operator, vectors: Tensor) -> Tensor:
    """J times (B, n, columns); where these are more than n, by the matrices, which take n products."""
    return J.matmat(vectors) if vectors.shape[2] <= J.shape[2] else J.dense() @ vectors


def _random(side: str, name: str, size: int, own: Frame, samples: Sequence[int], options: Options) -> list[Tensor]:
    """Random orthonormal vectors, one frame (B, size, K) per draw; those of a sample do not depend on the others."""
    drawn = []
    for sample in samples if options.chance else []:
        generator = random_numbers("chance", options.seed, name, side, sample)
        drawn.append(random_frames(options.chance, size, own.size, generator))
    if not drawn:
        return []
    return list(filled(torch.stack(drawn, 1), own.S.shape[1], 0.0).to(own.S.device))


def _among(values: Tensor, places: Sequence[int], count: int) -> Tensor:
    """(B, places, ...) -> (count, B, ...), NaN where nothing was computed."""
    whole = values.new_full((count, values.shape[0], *values.shape[2:]), float("nan"))
    whole[list(places)] = values.transpose(0, 1)
    return whole
