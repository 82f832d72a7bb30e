"""Time that may be spent, and what things will cost.

Costs are estimated from counts (products, operations) and from rates that are measured on this machine at the start. An
estimate may be off by some factor: whoever uses it compares it with what the last piece of the same work took. So a
budget is kept roughly, and what does not fit is left out with its estimate.
"""

from __future__ import annotations

import time

import torch

from skipscope.linear import Operator
from skipscope.spectrum import plan

TRIAL = 512  # size of the eigenproblem that is timed at the start
VECTORS = 16  # of the block whose product is timed


class Budget:
    def __init__(self, seconds: float, device: torch.device) -> None:
        self.seconds = seconds
        self._start = time.monotonic()
        self._rate = _operations_per_second(device)

    @property
    def spent(self) -> float:
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def for_operations(self, operations: float) -> float:
        """Estimated seconds of dense linear algebra."""
        return operations / self._rate

    def for_products(self, J: Operator, count: int) -> float:
        """Estimated seconds of `count` products with a vector, for all samples at once."""
        return _product_seconds(J) * count

    def for_spectrum(self, J: Operator) -> float:
        """Estimated seconds of all singular values of every sample."""
        cost = plan(J)
        return self.for_operations(cost.operations) + _product_seconds(J) * cost.products / J.shape[0]


def _operations_per_second(device: torch.device) -> float:
    generator = torch.Generator("cpu").manual_seed(0)
    matrix = torch.randn(TRIAL, TRIAL, dtype=torch.float64, generator=generator, device="cpu").to(device)
    matrix = matrix + matrix.T
    torch.linalg.eigvalsh(matrix)  # the first call loads libraries
    start = time.perf_counter()
    float(torch.linalg.eigvalsh(matrix)[0])  # waits for the device
    return (4 / 3 + 1) * TRIAL**3 / (time.perf_counter() - start)


def _product_seconds(J: Operator) -> float:
    """Of one vector for all samples, in a block of several."""
    vectors = torch.zeros(J.shape[0], J.shape[2], min(VECTORS, J.shape[2]), dtype=J.dtype, device=J.device)
    start = time.perf_counter()
    float(J.matmat(vectors).sum())
    return (time.perf_counter() - start) / vectors.shape[2]
