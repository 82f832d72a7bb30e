"""What a full spectrum will cost, before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

from skipscope.errors import InputError
from skipscope.linear.memory import free_bytes
from skipscope.linear.operator import Operator

COPIES = 3.0  # matrices of the working size alive at once: the operator's, its Gram matrix and the solver's work


@dataclass(frozen=True)
class Plan:
    """Cost of the dense route, for all samples one after another."""

    shape: tuple[int, int, int]
    products: int  # vectors multiplied
    bytes: int  # at the peak
    free: int
    operations: float  # floating-point, of the eigenproblems

    @property
    def fits(self) -> bool:
        return self.bytes <= self.free

    def __str__(self) -> str:
        return (
            f"{self.products:,} products, {self.bytes / 2**30:.2g} GiB of memory ({self.free / 2**30:.2g} GiB free), "
            f"{self.operations:.1e} operations"
        )


def plan(A: Operator) -> Plan:
    batch, m, n = A.shape
    small, large = min(m, n), max(m, n)
    needed = int(8 * (small * large + (COPIES - 1) * small * small))
    operations = batch * (small * small * large + 4 / 3 * small**3)
    return Plan(A.shape, batch * small, needed, free_bytes(A.device), operations)


def check_fits(A: Operator) -> Plan:
    """Refuse a full spectrum that cannot fit, with the numbers and what to use instead."""
    cost = plan(A)
    if not cost.fits:
        where = "the GPU" if A.device.type == "cuda" else "this machine"
        raise InputError(
            f"all singular values of {A.name} ({A.shape[1]:,} x {A.shape[2]:,}) need {cost.bytes / 2**30:,.0f} GiB in "
            f"float64, {where} has {cost.free / 2**30:,.0f} GiB free; use ss.svd(J, k) for the largest, "
            "ss.spectral_density(J) for the distribution, or restrict the Jacobian with tokens= or channels="
        )
    return cost
