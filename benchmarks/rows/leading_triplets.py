"""The ten largest singular triplets of a unit, for many images.

ARPACK       scipy.sparse.linalg.svds with products by torch.func.jvp and a recorded vjp, one image after another: what
             one writes without skipscope
Golub-Kahan  a single-vector recurrence on skipscope's products for all images at once, orthogonalised in full and
             without restarts, until the residuals of the ten values are below the tolerance: the shortest program of
             its kind
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

import skipscope as ss
from benchmarks.kit import OURS, Size, Way, Work
from benchmarks.subjects import network_and_images, one_per_stage
from skipscope.numerics import measuring

K = 10
TOLERANCE = 1e-4  # of residuals, relative to the largest value
GOALS = (40, 60, 60)  # times as fast as ARPACK, by stage
MOST_STEPS = 400
LOOK_EVERY = 10  # steps


def works(size: Size) -> Iterator[Work]:
    count = size.pick(smoke=8, cpu=32, gpu=64)
    alone = size.pick(smoke=2, cpu=8, gpu=4)  # images that ARPACK gets
    model, images = network_and_images(size, count)
    trunk = ss.trace(model, images[:2])
    point = trunk.at(images)
    for stage, name in enumerate(one_per_stage(trunk)):
        J = trunk[name].jacobian(point)

        def ours(J: Any = J) -> ss.SVD:
            return ss.svd(J, K, tol=TOLERANCE, route="iterative")

        def arpack(unit: ss.Unit = trunk[name]) -> numpy.ndarray:
            return numpy.stack([_by_scipy(unit, point.entry(unit)[[sample]]) for sample in range(alone)])

        def recurrence(J: Any = J) -> tuple[Tensor, int]:
            return golub_kahan(J, K, TOLERANCE)

        yield Work(
            f"ten largest triplets, {count} images, unit of stage {stage + 1} ({J.shape[1]:,} x {J.shape[2]:,})",
            {
                OURS: Way(ours, products=lambda found: int(found.products.double().mean())),
                "ARPACK, image by image": Way(arpack, alone / count),
                "Golub-Kahan": Way(recurrence, products=lambda found: found[1]),
            },
            _difference,
            allowed=2 * TOLERANCE,
            goals={"ARPACK, image by image": GOALS[stage]} if size.name == "gpu" else {},
            memory=stage == 0,
        )


def _by_scipy(function: Callable[[Tensor], Tensor], state: Tensor) -> numpy.ndarray:
    from scipy.sparse.linalg import LinearOperator, svds

    with measuring():  # skipscope's precision: no TF32
        exit_, pull = torch.func.vjp(function, state)

        def product(apply: Callable[[Tensor], Tensor], like: Tensor) -> Callable[[numpy.ndarray], numpy.ndarray]:
            return lambda v: apply(torch.as_tensor(v, dtype=like.dtype).to(like.device).view_as(like)).cpu().numpy()

        def push(tangent: Tensor) -> Tensor:
            return torch.func.jvp(function, (state,), (tangent,))[1].detach().flatten()

        def pulled(cotangent: Tensor) -> Tensor:
            return pull(cotangent)[0].detach().flatten()

        shape = (exit_.numel(), state.numel())
        operator = LinearOperator(shape, product(push, state), product(pulled, exit_), dtype=numpy.float32)
        start = numpy.random.default_rng(0).standard_normal(min(shape)).astype(numpy.float32)  # the same in every run
        _, values, _ = svds(operator, k=K, tol=TOLERANCE, v0=start)
    return numpy.sort(values)[::-1]


def golub_kahan(J: Any, k: int, tolerance: float) -> tuple[Tensor, int]:
    """Values (B, k), and products for each image."""
    batch, m, n = J.shape
    generator = torch.Generator("cpu").manual_seed(0)
    v = torch.randn(1, n, generator=generator).to(J.device).expand(batch, n)
    U, V = (torch.empty(batch, MOST_STEPS, size, device=J.device) for size in (m, n))
    bidiagonal = torch.zeros(batch, MOST_STEPS, MOST_STEPS, device=J.device)
    v = v / v.norm(dim=1, keepdim=True)
    for step in range(MOST_STEPS):
        V[:, step] = v
        u = J.matmat(v[:, :, None])[:, :, 0]
        for _ in range(2):
            inside = torch.einsum("bpm,bm->bp", U[:, :step], u)
            u = u - torch.einsum("bp,bpm->bm", inside, U[:, :step])
            bidiagonal[:, :step, step] += inside
        alpha = u.norm(dim=1, keepdim=True)
        bidiagonal[:, step, step] = alpha[:, 0]
        U[:, step] = u / alpha
        w = J.rmatmat(U[:, step, :, None])[:, :, 0]
        for _ in range(2):
            w = w - torch.einsum("bp,bpn->bn", torch.einsum("bpn,bn->bp", V[:, : step + 1], w), V[:, : step + 1])
        beta = w.norm(dim=1, keepdim=True)
        v = w / beta
        if step >= k and step % LOOK_EVERY == 0:
            x, values, _ = torch.linalg.svd(bidiagonal[:, : step + 1, : step + 1].cpu())
            residuals = beta.cpu() * x[:, -1, :k].abs()  # B, k
            if (residuals <= tolerance * values[:, :1]).all():
                return values[:, :k], 2 * (step + 1)
    return values[:, :k], 2 * MOST_STEPS


def _difference(answers: Mapping[str, Any]) -> float:
    ours = answers[OURS].S.cpu().double()
    arpack = torch.from_numpy(answers["ARPACK, image by image"].copy()).double()
    recurrence = answers["Golub-Kahan"][0].double()
    pairs = [(arpack, ours[: len(arpack)]), (recurrence, ours)]
    return max(float(((theirs - own).abs() / own[:, :1]).max()) for theirs, own in pairs)
