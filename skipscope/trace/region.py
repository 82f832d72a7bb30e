"""What the rule finds: the regions of residual units, and what was left out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from torch import fx

from skipscope.trace import operations


@dataclass(frozen=True)
class Region:
    """The nodes of one residual unit, up to its sum. Masks are those of the flow."""

    entry: fx.Node
    end: fx.Node  # the sum
    sums: tuple[fx.Node, ...]  # the sum and the partial sums that were flattened into it
    terms: tuple[fx.Node, ...]  # what is summed
    skip: fx.Node  # the term that is the skip
    skip_kind: str
    nodes: int  # after the entry, up to and including the sum
    skip_nodes: int
    linear: bool  # no activation in the branch
    gate: fx.Node | None = None  # what the entry is multiplied by on the skip, if that is computed from it
    factor: float = 1.0  # of the skip in the sum
    multipliers: tuple[Any, ...] | None = ()  # nodes and numbers that the entry is multiplied by on the skip

    def holds(self, other: Region) -> bool:
        return self is not other and other.nodes & ~self.nodes == 0


@dataclass(frozen=True)
class LeftOut:
    """A sum or concatenation of paths that is no residual unit, and why."""

    kind: str  # entangled | parallel | collecting | concatenation | pointwise | unmeasurable
    where: str  # path of the module that executed it
    reason: str


def coefficient(end: fx.Node, term: fx.Node, sums: Collection[fx.Node]) -> float:
    """What a term is multiplied by in a sum: signs and alphas of the partial sums on the way, repetitions."""
    alpha: Any = end.kwargs.get("alpha", 1)
    signs = {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[operations.name(end)]
    total = 0.0
    for argument, sign in zip(end.args[:2], signs, strict=True):
        if argument is term:
            total += sign
        elif isinstance(argument, fx.Node) and argument in sums:
            total += sign * coefficient(argument, term, sums)
    return total
