"""How fast this machine is: measured, for estimates of what a computation will take.

An estimate may be off by some factor: a machine that does other work meanwhile is slower, and large matrices are
decomposed at another rate than the small one that is timed.
"""

from __future__ import annotations

import time
from functools import cache

import torch

from skipscope.linear.operator import Operator
from skipscope.numerics import normal

TRIAL = {"cpu": 512, "cuda": 4096}  # size of the eigenproblem that is timed: below it a GPU only launches
VECTORS = {"cpu": 16, "cuda": 256}  # of the block whose product is timed
SHORT = 5.0  # seconds of all rows of a matrix, if a first product on a GPU, which loads kernels, is what they take


@cache
def operations_per_second(device: torch.device) -> float:
    """Of dense linear algebra in float64; measured once."""
    size = TRIAL.get(device.type, TRIAL["cpu"])
    matrix = normal((size, size), torch.Generator("cpu").manual_seed(0), device=device)
    matrix = matrix + matrix.T
    torch.linalg.eigvalsh(matrix)  # the first call loads libraries
    start = time.perf_counter()
    float(torch.linalg.eigvalsh(matrix)[0])  # waits for the device
    return (4 / 3 + 1) * size**3 / (time.perf_counter() - start)


def product_seconds(A: Operator) -> float:
    """Of one vector for all samples, in a block of several: from the left, or from the right where the first product
    from the left takes all rows, each a product from the right."""
    product, size = (A.rmatmat, A.shape[1]) if A.pushes_take_rows else (A.matmat, A.shape[2])
    count = min(VECTORS.get(A.device.type, VECTORS["cpu"]), size)
    vectors = torch.zeros(A.shape[0], size, count, dtype=A.dtype, device=A.device)

    def timed() -> float:
        start = time.perf_counter()
        float(product(vectors).sum())
        return time.perf_counter() - start

    seconds = timed()
    if A.device.type != "cpu" and seconds / max(1, count) * min(A.shape[1:]) > SHORT:
        seconds = timed()
    return seconds / max(1, count)
