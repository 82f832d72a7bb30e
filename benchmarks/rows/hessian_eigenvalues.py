"""The five eigenvalues of largest magnitude of the Hessian of a ResNet's loss.

curvlinops   its operator under SciPy's ARPACK, as its documentation shows
PyHessian    its own power iteration with deflation, up to 100 products for each
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy
from torch import nn

import skipscope as ss
from benchmarks.kit import OURS, Size, Way, Work
from benchmarks.rows.hessians import at_full_precision, by_curvlinops, by_pyhessian, network_and_batch

K = 5
TOLERANCE = 1e-3


def works(size: Size) -> Iterator[Work]:
    model, batch = network_and_batch(size)
    alone = size.pick(smoke=K, cpu=K, gpu=1)  # of PyHessian, which finds one eigenvalue after another
    weights = sum(weight.numel() for weight in model.parameters())

    def ours() -> ss.Eigs:
        return ss.eigs(ss.Hessian(model, nn.CrossEntropyLoss(), [batch]), K, which="magnitude", tol=TOLERANCE)

    def curvlinops() -> tuple[numpy.ndarray, int]:
        """Eigenvalues, and products."""
        from scipy.sparse.linalg import LinearOperator, eigsh

        theirs, products = by_curvlinops(model, batch).to_scipy(), 0

        def product(vector: numpy.ndarray) -> numpy.ndarray:
            nonlocal products
            products += 1
            return theirs.matvec(vector)

        # With a start of its own in every run it takes 21 to 33 products for the smallest network here.
        start = numpy.random.default_rng(0).standard_normal(weights).astype(theirs.dtype)
        counted = LinearOperator(theirs.shape, matvec=product, dtype=theirs.dtype)
        return eigsh(counted, k=K, tol=TOLERANCE, v0=start, return_eigenvectors=False), products

    def pyhessian() -> numpy.ndarray:
        values, _ = by_pyhessian(model, batch).eigenvalues(maxIter=100, tol=TOLERANCE, top_n=alone)
        return numpy.asarray(values)

    def difference(answers: Mapping[str, Any]) -> float:
        """From curvlinops; a power iteration may stop early, and its difference is not counted."""
        own = numpy.sort(numpy.abs(answers[OURS].values[0].cpu().numpy()))
        theirs = numpy.sort(numpy.abs(answers["curvlinops and ARPACK"][0]))
        return float(abs(own - theirs).max() / theirs.max())

    ways = {
        OURS: Way(ours, products=lambda found: int(found.products[0])),
        "curvlinops and ARPACK": Way(at_full_precision(curvlinops), products=lambda found: found[1]),
    }
    if size.name != "smoke":
        ways["PyHessian"] = Way(at_full_precision(pyhessian), alone / K)
    yield Work(
        f"{K} eigenvalues of the Hessian of ResNet-{size.pick(8, 20, 20)}, {weights:,} weights, "
        f"{len(batch[0]):,} images",
        ways,
        difference,
        allowed=2 * TOLERANCE,
        memory=True,
    )
