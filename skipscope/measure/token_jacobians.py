"""Jacobians between tokens: d x d matrices from one position of a block's entry to one of what it adds.

The rows of one exit token, pulled back once, hold the matrices of all entry tokens: d products for all of them, along
the path of these tokens alone where that is exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from skipscope.errors import InputError
from skipscope.linear import Dense, Operator
from skipscope.linear.token_route import OWN_PATH
from skipscope.measure.selection import Units, chosen_units
from skipscope.measure.token_matrices import LARGEST_SIDE, KeptMatrices
from skipscope.spectrum.plan import DENSE_SIDE, Route
from skipscope.trace import Point, Span, Trunk, Unit
from skipscope.trace.trunk import Part

NUMBERED = re.compile(r"(?:.*\.)?\d+(?=\.|#|$)")  # a path up to its last number: h.3 of h.3.attn


@dataclass(frozen=True)
class TokenPair:
    entry: int
    exit: int

    @property
    def name(self) -> str:
        return f"{self.entry} to {self.exit}"


def pairs_of(tokens: Sequence[Any] | None, count: int) -> list[TokenPair]:
    """tokens: a pair of positions or a list of pairs; None for the last with itself."""
    wanted = "expected a pair (entry, exit) of positions, or a list of pairs"
    if tokens is None:
        return [TokenPair(count - 1, count - 1)]
    if not isinstance(tokens, Sequence) or not len(tokens):
        raise InputError(f"tokens={tokens!r}: {wanted}")
    listed = [tokens] if all(isinstance(one, int) for one in tokens) else list(tokens)
    found = []
    for pair in listed:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(one, int) for one in pair):
            raise InputError(f"tokens={tokens!r}: {wanted}, got {pair!r}")
        if not all(-count <= one < count for one in pair):
            raise InputError(f"tokens={tokens!r}: expected positions below {count}, got {pair!r}")
        found.append(TokenPair(pair[0] % count, pair[1] % count))
    if len(set(found)) < len(found):
        raise InputError(f"tokens={tokens!r}: expected each pair once")
    return found


@dataclass(frozen=True)
class Member:
    """A block or a unit, and which of its Jacobians is measured."""

    name: str
    units: Sequence[Unit]  # that it consists of
    span: Span
    part: Part
    changes: bool  # is the entry taken off: what is added, not what leaves?

    def between(self, point: Point, samples: Sequence[int], entries: Sequence[int], exit_: int) -> Operator:
        """(B, d, entries x d), in float64, the entry not taken off."""
        one = list(entries) if len(entries) > 1 else entries[0]
        dtype = torch.float64 if self.span.in_any_type else None
        whole = self.span.jacobian(point, of=self.part, tail=self.part == "branch", tokens=(one, exit_), dtype=dtype)
        return (whole if len(samples) == whole.shape[0] else whole.take(list(samples))).double()


def members_of(trunk: Trunk, units: Units, of: str) -> list[Member]:
    """Blocks that hold a chosen unit, or the chosen units."""
    line = sorted(unit.index for stage in trunk.stages for unit in stage.units)
    chosen = chosen_units(trunk, line if units is None else units)
    if not chosen:
        raise InputError("units=[] names no unit; leave it out for all")
    if of != "block":
        # A module without a skip is all branch.
        parts: list[Part] = ["unit" if of == "unit" or unit.without_skip else "branch" for unit in chosen]
        return [Member(unit.name, [unit], unit, part, False) for unit, part in zip(chosen, parts, strict=True)]
    wanted = {unit.index for unit in chosen}
    if not wanted <= set(line):
        inside = next(unit.name for unit in chosen if unit.index not in line)
        raise InputError(f"{inside} lies inside another unit and belongs to no block; leave it out, or of='unit'")
    found = []
    for name, block in blocks_of([trunk.units[index] for index in line]):
        if any(unit.index in wanted for unit in block):
            span = block[0] if len(block) == 1 else trunk.span(block[0].index, block[-1].index)
            found.append(Member(name, block, span, "unit", True))
    return found


def blocks_of(units: Sequence[Unit]) -> list[tuple[str, list[Unit]]]:
    """Runs of units whose names agree up to their last number."""
    found: list[tuple[str, list[Unit]]] = []
    for unit in units:
        path, again, time = unit.name.partition("#")
        match = NUMBERED.match(path)
        name = match.group() + again + time if match else unit.name
        if found and found[-1][0] == name:
            found[-1][1].append(unit)
        else:
            found.append((name, [unit]))
    return found


class TokenJacobians:
    """Of every member and pair of tokens; operators, and matrices beyond what is kept, are made again when they are
    asked for."""

    def __init__(
        self,
        members: Sequence[Member],
        point: Point,
        samples: Sequence[int],
        pairs: Sequence[TokenPair],
        route: Route,
    ) -> None:
        self.members, self.point, self.samples, self.pairs, self.route = members, point, samples, pairs, route
        self.routes: dict[tuple[int, TokenPair], str] = {}  # by the place of a member: how its tokens were followed
        self._kept = KeptMatrices()

    def of(self, place: int) -> list[Operator]:
        """(B, d, d) for each pair of tokens."""
        return self._kept.of(place, lambda: self._made(place))

    def _is_dense(self, J: Operator) -> bool:
        """Whether matrices are made: for a large one of the whole sequence its many products cost too much."""
        followed = J.token_route is not None and J.token_route.startswith(OWN_PATH)
        return self.route == "dense" or (
            self.route == "auto" and J.shape[1] <= (LARGEST_SIDE if followed else DENSE_SIDE)
        )

    def _made(self, place: int) -> list[Operator]:
        member = self.members[place]
        found: dict[TokenPair, Operator] = {}
        for exit_ in dict.fromkeys(pair.exit for pair in self.pairs):
            entries = [pair.entry for pair in self.pairs if pair.exit == exit_]
            J = member.between(self.point, self.samples, entries, exit_)
            if not self._is_dense(J):
                found.update(
                    {TokenPair(entry, exit_): self._operator(place, TokenPair(entry, exit_)) for entry in entries}
                )
                continue
            rows = J.dense()
            for entry, matrix in zip(entries, rows.chunk(len(entries), 2), strict=True):
                pair = TokenPair(entry, exit_)
                if member.changes and entry == exit_:
                    matrix = matrix.clone() if len(entries) > 1 else matrix
                    matrix.diagonal(dim1=1, dim2=2).sub_(1)
                found[pair] = Dense(matrix.contiguous(), member.name, eps=J.eps)
                self.routes[place, pair] = J.token_route or ""
        return [found[pair] for pair in self.pairs]

    def _operator(self, place: int, pair: TokenPair) -> Operator:
        member = self.members[place]
        J = member.between(self.point, self.samples, [pair.entry], pair.exit)
        self.routes[place, pair] = J.token_route or ""
        if not member.changes or pair.entry != pair.exit:
            return J
        same = torch.eye(J.shape[1], dtype=J.dtype, device=J.device)
        return J - Dense(same.expand(J.shape[0], -1, -1), "identity")
