"""Gauss rules of random probes: the recurrences of Lanczos and of Golub and Kahan, and what they are decomposed to.

The theory and the references are in `density`. Everything here is in the unit of the operator (`scale.InUnit`), but for
the nodes of a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator
from skipscope.numerics import random_numbers, signs
from skipscope.spectrum.scale import scaled

FAR_OUTSIDE = 1e100  # units: no value is there, and its square is a number
SAME_WITHIN = 8.0  # times sqrt(max(m, n)) eps sigma_max: below it, a difference of values is rounding
ASYMMETRY_ALLOWED = 1000.0  # times sqrt(n) eps |A v|: above it, an operator is not symmetric


@dataclass(frozen=True)
class Rule:
    """Gauss rules, one per sample and probe, with the Jacobi matrix that they come from."""

    nodes: Tensor  # B, probes, steps: ascending
    weights: Tensor  # B, probes, steps: sum to 1 over the steps
    diagonal: Tensor  # B, probes, steps: in the unit
    offdiagonal: Tensor  # B, probes, steps - 1: in the unit
    exponent: Tensor  # B: the unit is 2^exponent


def random_signs(size: int, probes: int, seed: int) -> Tensor:
    """Random signs, (probes, size), of length 1: of all probes with independent entries those of least variance."""
    return signs((probes, size), random_numbers("probes", seed)).double() / math.sqrt(size)


def recurrence_of(A: Operator, start: Tensor, steps: int, symmetric: bool) -> tuple[Tensor, Tensor, Tensor, int]:
    """The recurrence for all probes at once, or for halves of them where the memory does not suffice."""
    recurrence = _lanczos if symmetric else _golub_kahan
    try:
        return recurrence(A, start, steps)
    except torch.OutOfMemoryError:
        if start.shape[1] == 1:
            raise
    parts = [recurrence_of(A, part, steps, symmetric) for part in start.chunk(2, dim=1)]
    main, band, exact = (torch.cat([part[i] for part in parts], dim=1) for i in range(3))  # type: ignore[misc]
    return main, band, exact, sum(part[3] for part in parts)


def _golub_kahan(A: Operator, v: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Diagonal and upper band of B, whether the recurrence ended, and the products. v: (B, probes, n), n <= m."""
    (batch, probes, n), m = v.shape, A.shape[1]
    left, right = v.new_empty(batch, probes, steps, m), v.new_empty(batch, probes, steps, n)
    diagonal, band, scale, ended = _at_start(v, steps)
    products = 0
    for step in range(steps):
        right[:, :, step] = v
        u = _orthogonal(_multiply(A.matmat, v, A), left[:, :, :step])
        u, diagonal[..., step], scale, _ = _normalise(u, scale, A)
        left[:, :, step] = u
        products += probes
        if step == steps - 1:
            break
        v = _orthogonal(_multiply(A.rmatmat, u, A), right[:, :, : step + 1])
        v, band[..., step], scale, stopped = _normalise(v, scale, A)  # u = 0 gives v = 0
        products += probes
        ended |= stopped
        if ended.all():
            break
    return diagonal.cpu(), band[..., : steps - 1].cpu(), ended.cpu(), products


def _lanczos(A: Operator, v: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Diagonal and band of T, whether the recurrence ended, and the products. v: (B, probes, n)."""
    batch, probes, n = v.shape
    basis = v.new_empty(batch, probes, steps, n)
    diagonal, band, scale, ended = _at_start(v, steps)
    products = 0
    for step in range(steps):
        basis[:, :, step] = v
        product = _multiply(A.matmat, v, A)
        products += probes
        if step == 0:
            _check_symmetric(v, product, A)
        diagonal[..., step] = (v * product).sum(-1)
        scale = torch.maximum(scale, diagonal[..., step].abs())
        v, band[..., step], scale, stopped = _normalise(_orthogonal(product, basis[:, :, : step + 1]), scale, A)
        ended |= stopped
        if ended.all():
            break
    return diagonal.cpu(), band[..., : steps - 1].cpu(), ended.cpu(), products


def _at_start(v: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Zeros for the diagonal and the band, the largest number seen so far, and whether the recurrence has ended."""
    diagonal = torch.zeros(*v.shape[:2], steps, dtype=torch.float64, device=v.device)
    return diagonal, torch.zeros_like(diagonal), diagonal[..., 0].clone(), diagonal[..., 0] != 0


def _multiply(product: Callable[[Tensor], Tensor], vectors: Tensor, A: Operator) -> Tensor:
    result = product(vectors.mT.contiguous()).detach().mT.contiguous()  # B, probes, size
    if not result.isfinite().all():
        samples = (~result.isfinite()).any(-1).any(-1).nonzero().flatten().tolist()
        raise InputError(
            f"spectral_density: products of {A.name} have NaN or infinite entries for samples {samples}; "
            "look for overflow in the weights or in the states at which it was linearised"
        )
    return result


def _orthogonal(vector: Tensor, basis: Tensor) -> Tensor:
    """The part of a vector (B, probes, size) orthogonal to a basis (B, probes, k, size): Gram-Schmidt, twice."""
    for _ in range(2):
        vector = vector - (basis.mT @ (basis @ vector[..., None]))[..., 0]
    return vector


def _normalise(vector: Tensor, scale: Tensor, A: Operator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The vector at length 1, its length, the largest number seen so far, and where the length is rounding: zero."""
    length = torch.linalg.vector_norm(vector, dim=-1)  # B, probes
    scale = torch.maximum(scale, length.double())
    stopped = length <= relative_rounding(A) * scale
    unit = torch.where(stopped[..., None], 0, vector / torch.where(stopped, 1, length)[..., None])
    return unit, torch.where(stopped, 0, length.double()), scale, stopped


def relative_rounding(A: Operator) -> float:
    return SAME_WITHIN * math.sqrt(max(A.shape[1:])) * A.eps


def _check_symmetric(v: Tensor, product: Tensor, A: Operator) -> None:
    """Costs no product: v_i^T A v_j = v_j^T A v_i for all pairs of probes of a sample."""
    pairs = (v @ product.mT).double()  # B, probes, probes
    difference = (pairs - pairs.mT).abs().amax((1, 2))
    size = product.double().norm(dim=-1).amax(1)  # B
    if (difference > ASYMMETRY_ALLOWED * math.sqrt(A.shape[1]) * A.eps * size).any():
        raise InputError(
            f"spectral_density: symmetric=True, but {A.name} is not: v^T A w and w^T A v differ by "
            f"{float((difference / size).max()):.2g} of their size; leave it out for the density of singular values"
        )


def gauss_rule(main: Tensor, band: Tensor, symmetric: bool, exponent: Tensor) -> Rule:
    """The Gauss rule of a tridiagonal matrix or of B^T B, given in the unit. A recurrence that ended leaves zeros, of
    weight zero."""
    matrix = torch.diag_embed(main) + torch.diag_embed(band, offset=1)
    if symmetric:
        nodes, vectors = torch.linalg.eigh(matrix, UPLO="U")
        return Rule(scaled(nodes, exponent), vectors[..., 0, :] ** 2, main, band, exponent)
    _, nodes, vectors = torch.linalg.svd(matrix)  # vectors: B, probes, steps (one per row), steps
    diagonal = main**2
    diagonal[..., 1:] += band**2
    weights = vectors[..., :, 0].flip(-1) ** 2
    return Rule(scaled(nodes.flip(-1), exponent), weights, diagonal, main[..., :-1] * band, exponent)


def christoffel(rule: Rule, x: Tensor) -> Tensor:
    """1 / sum_j p_j(x)^2 over the orthonormal polynomials of each rule, by their three-term recurrence: B, probes."""
    before, now = torch.zeros_like(rule.diagonal[..., 0]), torch.ones_like(rule.diagonal[..., 0])
    total, coupling = now.clone(), torch.zeros_like(now)
    for step in range(rule.offdiagonal.shape[-1]):
        following = rule.offdiagonal[..., step]
        after = ((x - rule.diagonal[..., step]) * now - coupling * before) / following
        # Far beyond any mass that matters, and before the squares overflow; an ended recurrence divides by zero.
        frozen = (total > 1e100) | (following == 0)
        before, now = torch.where(frozen, 0, now), torch.where(frozen, 0, after)
        total, coupling = total + now**2, following
    return 1 / total
