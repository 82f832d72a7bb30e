"""Jacobians between tokens as matrices: d x d numbers, which fit where the Jacobian of a sequence would not.

Along the path of one token all d rows are one pass of d cotangents through matrix products with the weights: about the
cost of d tokens in a forward pass. Leading triplets and grids are then products with a matrix that is there.

Matrices are kept from one use to the next as far as a fixed number of bytes goes, and made again beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from skipscope.linear import Dense, Operator
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY, free_bytes
from skipscope.linear.token_route import OWN_PATH
from skipscope.spectrum.assembly import compared
from skipscope.spectrum.plan import DENSE_SIDE, Route
from skipscope.spectrum.scale import default_tolerance

LARGEST_SIDE = 8192  # rows or columns of a matrix
COPIES = 3  # of a matrix while it is made and multiplied
KEPT_BYTES = 2 * 2**30
ROUNDING_SHARE = 0.25  # of the tolerance of singular triplets that the matrix itself may be off by


def as_matrix(J: Operator, route: Route) -> Operator:
    """The matrices of a Jacobian that follows its tokens alone, where they fit and are as exact as its products; those
    of up to 1024 rows and columns are the solver's own business."""
    _, m, n = J.shape
    followed = J.token_route is not None and J.token_route.startswith(OWN_PATH)
    if route != "auto" or not followed or not DENSE_SIDE < min(m, n) <= max(m, n) <= LARGEST_SIDE:
        return J
    if COPIES * 8 * J.shape[0] * m * n > SHARE_OF_FREE_MEMORY * free_bytes(J.device):
        return J
    entries = J.dense().detach()
    known = compared(J, entries, J.dtype)
    largest = torch.linalg.vector_norm(known.matrix, dim=1).amax(1).cpu()  # B: of a column, so at most s_1
    if bool((known.hidden > ROUNDING_SHARE * default_tolerance(J.dtype) * largest).any()):
        return J
    found = Dense(entries, J.name, eps=J.eps)
    found.token_route = J.token_route
    return found


class KeptMatrices:
    """By a name of each; what is no matrix is made again when it is asked for."""

    def __init__(self) -> None:
        self._kept: dict[Any, list[Operator]] = {}
        self._bytes = 0

    def of(self, name: Any, make: Callable[[], Sequence[Operator]]) -> list[Operator]:
        if name in self._kept:
            return self._kept[name]
        made = list(make())
        size = sum(one.matrix.numel() * one.matrix.element_size() for one in made if isinstance(one, Dense))
        if all(isinstance(one, Dense) for one in made) and made:
            room = min(KEPT_BYTES, int(SHARE_OF_FREE_MEMORY * (free_bytes(made[0].device) + self._bytes)))
            if self._bytes + size <= room:
                self._kept[name] = made
                self._bytes += size
        return made
