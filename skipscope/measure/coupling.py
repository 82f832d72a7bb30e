"""Transformer block coupling (Aubry, Meng, Sugolov and Papyan, arXiv 2407.07810): do the blocks of a transformer act
along the same directions, in every layer and on every token?

J_i(s, t) is the derivative of what block i adds at position t with respect to its entry at position s, a d x d matrix:
d (exit - entry)[t] / d entry[s]. `of="branch"` has the branch of each unit instead, with the tail's derivative as
`ss.alignment` has it, and `of="unit"` whole units with their skips. With J_i = U_i S_i V_i^T and its K leading vectors:

coupling         m_K = | |U_j^T J_i V_j| - diag(S_i) |_F / |S_i| for the same pair of tokens: 0 where blocks i and j
                 share their leading singular vectors (dimensions `unit` i, `other` j, `pair`)
token_coupling   the same for one block and two pairs of tokens: J_i of `pair` in the vectors of `other_pair`
..._signed       without the absolute value, as in the paper: also the signs of the vectors must agree
chance           the mean of m_K with random orthonormal vectors for U_j and V_j; chance_error: standard error
value, residual, converged   s_1, ..., s_K and max(|J v - s u|, |J^T u - s v|)
k_used           min(K, the singular values that are not zero within rounding): 0 for a pair in which t does not see s

A pair of matrices counts the smaller k_used of the two. A block is a run of units whose names agree up to their last
number: h.3.attn and h.3.mlp are block h.3.

Everything is in float64. Cost per block, sample and exit token: d products with the transposed Jacobian give the
matrices of all entry tokens up to d = 8192 (above that, `ss.svd` from products), then one decomposition for each pair
and K products with a d x d matrix for each coupling. Products are those of the tokens' own path where that is exact,
about as many times cheaper than those of the sequence as it has tokens (coordinate `token_route`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear import Dense, Operator
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY, free_bytes
from skipscope.measure.chain import require_tokens
from skipscope.measure.descriptions import described
from skipscope.measure.jacobian_pairs import Frame, chance_table, frame, random_frames
from skipscope.measure.jacobian_pairs import coupling as distance
from skipscope.measure.selection import (
    Samples,
    Units,
    attributes,
    labels,
    point_of,
    refuse_batch_statistics,
    sample_indices,
)
from skipscope.measure.token_jacobians import TokenJacobians, TokenPair, members_of, pairs_of
from skipscope.measure.token_matrices import KEPT_BYTES
from skipscope.memory_limit import Memory, with_memory
from skipscope.numerics import random_numbers
from skipscope.progress import Progress, called, with_progress
from skipscope.spectrum import svd
from skipscope.spectrum.plan import Route
from skipscope.trace import Trunk
from skipscope.trace.freshness import asked_once

if TYPE_CHECKING:
    import xarray

DEPTH, TOKENS = ("unit", "other", "sample", "pair"), ("unit", "sample", "pair", "other_pair")
ONE = ("unit", "sample", "pair")
DIMENSIONS = {
    **{f"coupling{signed}": DEPTH for signed in ("", "_signed")},
    **{f"token_coupling{signed}": TOKENS for signed in ("", "_signed")},
    **{f"chance{signed}{error}": ONE for signed in ("", "_signed") for error in ("", "_error")},
    **dict.fromkeys(("value", "residual", "converged"), (*ONE, "rank")),
    "k_used": ONE,
}


@with_progress
@asked_once()
@with_memory
def coupling(
    trunk: Trunk,
    x: Any,
    *,
    k: int = 10,
    units: Units = None,
    samples: Samples = None,
    tokens: Sequence[Any] | None = None,
    of: str = "block",
    chance: int = 8,
    route: Route = "auto",
    tol: float | None = None,
    seed: int = 0,
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point; dimensions `unit`, `other`, `sample`, `pair` and `other_pair`.

    k: leading vectors. units: names or indices of units, all that follow one another by default; blocks that hold one.
    samples: how many of the first, or which of the batch; all by default.
    tokens: a pair (entry, exit) of positions, or a list of pairs; by default the last position with itself.
    of: "block" what a block adds, "branch" of every unit, "unit" every unit with its skip.
    chance: random draws for the chance level, 0 for none. route, tol: of the decomposition, as in `ss.svd`.
    """
    import xarray

    _check(k, of, chance, route)
    refuse_batch_statistics(trunk.model)
    members = members_of(trunk, units, of)
    count, width = require_tokens(trunk, [unit for member in members for unit in member.units], "coupling")
    pairs = pairs_of(tokens, count)
    given = point_of(trunk, x)
    indices, point = sample_indices(given.batch, samples), point_of(trunk, given, samples)
    k = min(k, width)
    tell, steps = called(progress), 0
    pieces = _pieces(point.batch, len(members) * len(pairs), width, point.entry(members[0].units[0]).device)
    rows = []
    for piece in pieces:
        jacobians = TokenJacobians(members, point, piece, pairs, route)
        grid = _Grid(jacobians, pairs, k, route, tol, seed)
        for place in range(len(members)):
            grid.decompose(place)
            steps += 1
            if tell is not None:
                tell(steps, 2 * len(members) * len(pieces))
        drawn = _drawn([indices[sample] for sample in piece], width, k, chance, seed, point.entry(members[0].units[0]))
        found = []
        for place in range(len(members)):
            found.append(grid.couplings(place, drawn))
            steps += 1
            if tell is not None:
                tell(steps, 2 * len(members) * len(pieces))
        rows.append({name: torch.stack([one[name] for one in found]) for name in found[0]})
    data = {
        name: (dimensions, _joined([row[name] for row in rows], name, dimensions))
        for name, dimensions in DIMENSIONS.items()
        if name in rows[0]
    }
    own = str(point.entry(members[0].units[0]).dtype).removeprefix("torch.")
    arithmetic = sorted({"float64" if member.span.in_any_type else own for member in members})
    about = attributes("coupling", trunk, k=k, of=of, draws=chance, seed=seed, computed_in=", ".join(arithmetic))
    names = [member.name for member in members]
    coordinates = {
        **(labels([member.units[0] for member in members]) if of != "block" else {}),
        "unit": names,
        "other": names,
        "sample": indices,
        "pair": [pair.name for pair in pairs],
        "other_pair": [pair.name for pair in pairs],
        "entry_token": ("pair", [pair.entry for pair in pairs]),
        "exit_token": ("pair", [pair.exit for pair in pairs]),
        "token_route": (
            ("unit", "pair"),
            [[jacobians.routes[place, pair] for pair in pairs] for place in range(len(members))],
        ),
    }
    return described(xarray.Dataset(data, coordinates, about))


def _check(k: int, of: str, chance: int, route: str) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k={k!r}: expected a whole number from 1 on")
    if of not in ("block", "branch", "unit"):
        raise InputError(f"of={of!r}: expected block, branch or unit")
    if chance < 0 or chance == 1:
        raise InputError(f"chance={chance}: expected 0, or at least 2 draws for a mean with an error")
    if route not in get_args(Route):
        raise InputError(f"route={route!r}: expected one of {', '.join(get_args(Route))}")


def _pieces(batch: int, matrices: int, width: int, device: torch.device) -> list[list[int]]:
    """Samples whose matrices are in memory together: those of all blocks where they are kept, of one otherwise."""
    one = 8 * width**2
    needed = 3 * (one * matrices if one * matrices <= KEPT_BYTES else KEPT_BYTES + one)
    at_once = max(1, int(SHARE_OF_FREE_MEMORY * free_bytes(device) / needed))
    return [list(range(start, min(start + at_once, batch))) for start in range(0, batch, at_once)]


class _Grid:
    """The leading vectors of every block and pair of tokens, and what the Jacobians are in them."""

    def __init__(
        self,
        jacobians: TokenJacobians,
        pairs: Sequence[TokenPair],
        k: int,
        route: Route,
        tol: float | None,
        seed: int,
    ) -> None:
        self.jacobians, self.pairs, self.k, self.route, self.tol, self.seed = jacobians, pairs, k, route, tol, seed
        self.frames: list[list[Frame]] = []
        self.own: list[dict[str, Tensor]] = []

    def decompose(self, place: int) -> None:
        frames, columns = [], []
        for J in self.jacobians.of(place):
            found = svd(J, self.k, route=self.route, tol=self.tol, seed=self.seed, with_rank=True)
            frames.append(frame(found, self.k))
            columns.append({"value": found.S, "residual": found.residuals, "converged": found.converged})
        self.frames.append(frames)
        self.own.append(
            {
                "k_used": torch.stack([one.counts for one in frames], 1),  # B, pairs
                **{name: torch.stack([one[name] for one in columns], 1) for name in columns[0]},  # B, pairs, K
            }
        )

    def couplings(self, place: int, drawn: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
        """Of one block: (other, B, pairs) and (B, pairs, other pairs)."""
        depth: dict[str, list[Tensor]] = {}
        for at, J in enumerate(self.jacobians.of(place)):
            own = self.frames[place][at]
            others = [frames[at] for frames in self.frames] + self.frames[place]
            left, right = [one.U for one in others], [one.V for one in others]
            if drawn is not None:
                left, right = [*left, *drawn[0]], [*right, *drawn[1]]
            grids = _grids(J, left, right)  # B, blocks, K, K
            usable = torch.stack([torch.minimum(own.counts, one.counts) for one in others], 1)  # B, others
            for signed, suffix in ((False, ""), (True, "_signed")):
                values = distance(grids[:, : len(others)], own.S[:, None], usable, signed=signed)  # B, others
                depth.setdefault(f"coupling{suffix}", []).append(values[:, : len(self.frames)].T)
                depth.setdefault(f"token_coupling{suffix}", []).append(values[:, len(self.frames) :])
                if drawn is not None:
                    tables = chance_table(grids[:, len(others) :], own.S, signed=signed)  # B, K
                    for table, error in zip(tables, ("", "_error"), strict=True):
                        level = table.gather(1, (own.counts - 1).clamp(min=0)[:, None])[:, 0]
                        level = torch.where(own.counts > 0, level, torch.nan)
                        depth.setdefault(f"chance{suffix}{error}", []).append(level)
        axis = {"coupling": 2, "coupling_signed": 2}
        return {**{name: torch.stack(some, axis.get(name, 1)) for name, some in depth.items()}, **self.own[place]}


def _grids(J: Operator, left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """U_j^T J V_j of all frames: (B, frames, K, K)."""
    columns = torch.cat(list(right), 2)
    images = J.matmat(columns) if columns.shape[2] <= J.shape[2] or isinstance(J, Dense) else J.dense() @ columns
    images = images.unflatten(2, (len(right), -1)).transpose(1, 2)  # B, frames, d, K
    return torch.stack(list(left), 1).mT @ images


def _drawn(
    samples: Sequence[int], width: int, k: int, draws: int, seed: int, like: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Random orthonormal vectors of the exit and the entry, (draws, B, d, K); those of a sample are its own."""
    if not draws:
        return None
    sides = []
    for side in ("exit", "entry"):
        frames = [random_frames(draws, width, k, random_numbers("chance", seed, side, sample)) for sample in samples]
        sides.append(torch.stack(frames, 1).to(like.device))
    return sides[0], sides[1]


def _joined(parts: Sequence[Tensor], name: str, dimensions: Sequence[str]) -> Any:
    return torch.cat(list(parts), list(dimensions).index("sample")).cpu().numpy()
