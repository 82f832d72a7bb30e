"""The spectral density of the Hessian of a ResNet's loss, by random probes and Lanczos steps.

curvlinops   as many products in blocks of as many vectors, and nothing else: what its own density would take at least
PyHessian    its own density, with as many probes and steps
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import skipscope as ss
from benchmarks.kit import OURS, Size, Way, Work
from benchmarks.rows.hessians import at_full_precision, by_curvlinops, by_pyhessian, network_and_batch


def works(size: Size) -> Iterator[Work]:
    probes, steps = size.pick(smoke=(4, 8), cpu=(4, 16), gpu=(8, 32))
    model, batch = network_and_batch(size)
    other = by_curvlinops(model, batch)
    alone = size.pick(smoke=probes, cpu=probes, gpu=1)  # probes of PyHessian, which takes them one after another
    vectors = torch.randn(other.shape[1], probes, device=size.device)

    def ours() -> ss.Density:
        H = ss.Hessian(model, nn.CrossEntropyLoss(), [batch])
        return ss.spectral_density(H, symmetric=True, probes=probes, steps=steps)

    def products() -> Tensor:
        for _ in range(steps):
            found = other @ vectors
        return found

    def pyhessian() -> float:
        values, _ = by_pyhessian(model, batch).density(iter=steps, n_v=alone)
        return max(max(one) for one in values)

    def difference(answers: Mapping[str, Any]) -> float:
        """Of the products with the same vectors; PyHessian's probes are its own."""
        theirs = answers["curvlinops, as many products"]
        own = ss.Hessian(model, nn.CrossEntropyLoss(), [batch]).matmat(vectors[None])[0]
        return float((own - theirs).norm() / theirs.norm())

    ways = {
        OURS: Way(ours, products=lambda found: found.products),
        "curvlinops, as many products": Way(at_full_precision(products), products=lambda _: probes * steps),
        "PyHessian": Way(at_full_precision(pyhessian), alone / probes, products=lambda _: probes * steps),
    }
    if size.device == "cuda":
        ways["curvlinops in TF32, as many products"] = Way(products, products=lambda _: probes * steps)
    yield Work(
        f"density of the Hessian of ResNet-{size.pick(8, 20, 20)}, {other.shape[1]:,} weights, "
        f"{len(batch[0]):,} images, {probes} probes x {steps} steps",
        ways,
        difference,
        allowed=1e-3,
        goals={"curvlinops, as many products": 2} if size.name == "gpu" else {},
        memory=True,
    )
