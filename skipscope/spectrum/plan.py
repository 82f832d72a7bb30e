"""What a spectrum costs, and which route is taken: dense matrices or products alone. All limits of size are here.

A route does not depend on what else the machine does, so that numbers can be had again: dense matrices are taken up to
a fixed size (`DENSE_BYTES`), and the cheaper route by counted operations. Only where memory is shorter than that does
free memory decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch

from skipscope.errors import InputError
from skipscope.linear.memory import free_bytes
from skipscope.linear.operator import Operator
from skipscope.spectrum.rates import operations_per_second, product_seconds

DENSE_BYTES = 8 * 2**30  # the most that a dense route takes without being asked: matrix, vectors and work space
DENSE_COPIES = 4  # matrices alive at once, with vectors
DENSE_ENTRIES = DENSE_BYTES // (8 * DENSE_COPIES)  # of one matrix in float64: 16,384 x 16,384
DENSE_SIDE = 1024  # up to this min(m, n) a matrix and its SVD take about a second
COPIES_WITHOUT_VECTORS = 3  # the operator's matrix, its Gram matrix and the solver's work
STEP_FLOPS = 1e8  # what a step of an iteration costs however small the operator: its many small calls
EXPECTED_CYCLES = 12
TRIAL_STEPS = 60  # at most, for the trial after which nothing can have been missed (`rounds`)
TRIAL_BYTES = 2**32  # of its bases, and no more than this share of what is free
TRIAL_SHARE = 0.25
BLOCK = 2  # vectors per product: between the fewest products (1) and the fewest steps (4 and more)

Route = Literal["auto", "dense", "iterative"]


@dataclass(frozen=True)
class Plan:
    """Cost of all singular values, for all samples one after another."""

    shape: tuple[int, int, int]
    products: int  # vectors multiplied
    bytes: int  # at the peak
    free: int
    operations: float  # floating-point, of the eigenproblems
    seconds: float = math.nan  # estimated from rates that are measured on this machine; NaN where it does not fit

    @property
    def fits(self) -> bool:
        return self.bytes <= self.free

    def __str__(self) -> str:
        return (
            f"{self.products:,} products, {self.bytes / 2**30:.2g} GiB of memory ({self.free / 2**30:.2g} GiB free), "
            f"{self.operations:.1e} operations"
            f"{'' if math.isnan(self.seconds) else f', about {in_words(self.seconds)}'}"
        )


def plan(A: Operator) -> Plan:
    """What `singular_values(A)` will cost, before it is computed.

    The seconds are an estimate for this machine, from the times of a few products with A and of a small eigenproblem.
    """
    cost = counted(A)
    if not cost.fits:  # nor may what is timed
        return cost
    dense = cost.operations / operations_per_second(A.device)
    return replace(cost, seconds=dense + product_seconds(A) * cost.products / max(1, A.shape[0]))


def in_words(seconds: float) -> str:
    """An estimate is not given to the second."""
    if seconds < 1:
        return "a second or less"
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 10 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} seconds"


def counted(A: Operator) -> Plan:
    """Without the seconds: nothing is measured."""
    batch, m, n = A.shape
    small, large = min(m, n), max(m, n)
    needed = 8 * (small * large + (COPIES_WITHOUT_VECTORS - 1) * small * small)
    operations = batch * (small * small * large + 4 / 3 * small**3)
    return Plan(A.shape, batch * small, needed, free_bytes(A.device), operations)


def check_fits(A: Operator) -> Plan:
    """Refuse a decomposition that cannot fit, with the numbers and what to use instead."""
    cost = counted(A)
    if not cost.fits:
        where = "the GPU" if A.device.type == "cuda" else "this machine"
        raise InputError(
            f"all singular values of {A.name} ({A.shape[1]:,} x {A.shape[2]:,}) need {cost.bytes / 2**30:,.0f} GiB in "
            f"float64, {where} has {cost.free / 2**30:,.0f} GiB free; use ss.svd(J, k) for the largest, "
            "ss.spectral_density(J) for the distribution, or restrict the Jacobian with tokens= or channels="
        )
    return cost


@dataclass(frozen=True)
class Costs:
    """The sizes of an iteration for a few values, and the estimated costs of both routes per sample, in floating-point
    operations."""

    block: int  # vectors per product
    subspace: int  # basis vectors at the end of a cycle
    keep: int  # basis vectors that a restart keeps
    dense: float
    dense_bytes: int
    iterative: float

    def route(self, device: torch.device, *, prefer_dense: bool = False) -> Literal["dense", "iterative"]:
        """The dense one where it is cheaper, or preferred, and fits."""
        cheaper = prefer_dense or self.dense <= self.iterative
        fits = self.dense_bytes <= DENSE_BYTES and self.dense_bytes <= free_bytes(device)
        return "dense" if cheaper and fits else "iterative"

    def trial_room(self, vector_bytes: int, device: torch.device) -> int:
        """How many basis vectors a trial may have; no more than a cycle where memory is short of a trial's."""
        most = int(min(TRIAL_BYTES, TRIAL_SHARE * free_bytes(device))) // vector_bytes
        return max(self.subspace, min(most, self.subspace + TRIAL_STEPS * self.block))

    def parts(self, batch: int) -> Iterator[range]:
        """The samples whose matrices are in memory together."""
        at_once = max(1, DENSE_BYTES // self.dense_bytes)
        return (range(start, min(start + at_once, batch)) for start in range(0, batch, at_once))


def costs(
    shape: tuple[int, int, int], k: int, block: int | None, decomposition: float, sides: int, steps: int = 14
) -> Costs:
    """Both costs, where one product is taken to cost as much as that with a dense matrix, 2 m n.

    dense:      2 m n min(m, n) to assemble + `decomposition` + two calls
    iterative:  P (2 m n + 8 max(m, n) p) + a fixed price per step, for P = sides (p + 12 (p - keep)) products: a full
                cycle and twelve more, every vector orthogonalised twice against p others
    """
    batch, m, n = shape
    small, large = min(m, n), max(m, n)
    block = min(block or BLOCK, small)
    subspace = min(small, max(2 * k, k + steps * max(block, BLOCK)))  # a narrow one would restart all the time
    keep = (k + subspace) // 2
    products = sides * (subspace + EXPECTED_CYCLES * (subspace - keep))
    return Costs(
        block=block,
        subspace=subspace,
        keep=keep,
        dense=2.0 * m * n * small + decomposition + 2 * STEP_FLOPS / batch,
        dense_bytes=8 * m * n * DENSE_COPIES,
        iterative=products * (2.0 * m * n + 8.0 * large * subspace) + products / sides / block * STEP_FLOPS / batch,
    )
