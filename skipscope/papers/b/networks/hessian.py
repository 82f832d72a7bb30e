"""The exact Hessian of an n-shortcut network's loss by all its weights, at any point.

Where no ReLU switches, each sample sees a linear network. With L_a the map from what layer a puts out to the network's
output, x_a the input of layer a, and C_ab the map from what layer b puts out to what a later layer a takes in,

    df = sum_a L_a dW_a x_a        d^2 f = 2 sum_{a > b} L_a dW_a C_ab dW_b x_b

so that in the order of `as_vector`, each weight column by column, the blocks for a >= b are

    H_ab[ji, lk] = < (x_a x_b^T)[j, l] (L_a^T L_b)[i, k] + C_ab[j, k] (L_a^T e)[i] x_b[l] >,    e = f - y

without the second term for a = b. In a linear network L and C are the same for all samples: from second moments alone,
each block is a sum of two Kronecker products. Otherwise cost and memory are those of a few matrix products per pair of
layers: m L^2 d^4 operations. Smooth activations have a curvature of their own, which the blocks above leave out; for
them, and for biases, there is automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.numerics import load_forward_mode
from skipscope.papers.b.networks.loss import Data, Moments, Samples, check_width, suited, within
from skipscope.papers.b.networks.network import Seen, ShortcutSpec, as_vector, backward, from_vector, outputs, scaled

ROUTES = ("moments", "patterns", "autograd")
LOG_CEILING = 14  # log10 of a condition number, above which it is rounding noise of float64
RELATIVE_NOISE = 10.0**-LOG_CEILING  # of the largest |lambda|: smaller ones are rounding errors
SMALL_QUANTILE = 0.1  # the quantile of |lambda| that stands for the smallest, as in the paper


@dataclass(frozen=True, eq=False)
class ShortcutHessian:
    """Loss, gradient and Hessian, with parameters in the order of `as_vector`."""

    loss: float
    gradient: Tensor  # parameters
    matrix: Tensor  # parameters, parameters
    route: str  # by which it was computed: one of ROUTES


def shortcut_hessian(
    spec: ShortcutSpec,
    weights: Tensor,
    data: Data,
    biases: Tensor | None = None,
    *,
    route: str = "auto",
    memory: int | None = None,
) -> ShortcutHessian:
    """At the weights (L, d, d) of one network, in their precision and on their device.

    route: moments (linear networks), patterns (ReLU and identity, at fixed activation patterns: exact but where a ReLU
    is at zero, with the slope 0 there), autograd (any network, with samples: slow, and large). auto: the first of these
    that will do. memory: bytes for the work on samples, beside the Hessian itself.
    """
    spec.check(weights, biases)
    if weights.ndim != 3:
        raise InputError(f"weights: expected those of one network, got the shape {tuple(weights.shape)}")
    check_width(spec, data)
    possible: dict[str, Callable[[], ShortcutHessian]] = {}
    if spec.linear:
        possible["moments"] = lambda: _by_maps(spec, weights, suited(spec, weights, data), memory, "moments")
    if isinstance(data, Samples):
        samples = data
        if spec.piecewise_linear:
            possible["patterns"] = lambda: _by_maps(spec, weights, samples.like(weights), memory, "patterns")
        possible["autograd"] = lambda: _by_autograd(spec, weights, samples.like(weights), biases)
    if not possible:
        raise InputError("data: second moments are enough for a linear network only; expected Samples for this one")
    if route not in ("auto", *possible):
        given = f"this network with {type(data).__name__}"
        raise InputError(f"route: expected {' or '.join(possible)} for {given}, got {route!r}")
    return possible[next(iter(possible)) if route == "auto" else route]()


def _by_autograd(spec: ShortcutSpec, weights: Tensor, data: Samples, biases: Tensor | None) -> ShortcutHessian:
    def loss(vector: Tensor) -> Tensor:
        W, b = from_vector(spec, vector)
        return data.loss(outputs(spec, W, data.x, b))[0]

    load_forward_mode()
    vector = as_vector(spec, weights, biases).detach()
    gradient, value = torch.func.grad_and_value(loss)(vector)
    return ShortcutHessian(float(value), gradient, torch.func.hessian(loss)(vector), "autograd")


@torch.no_grad()
def _by_maps(spec: ShortcutSpec, weights: Tensor, data: Data, memory: int | None, route: str) -> ShortcutHessian:
    L, d = spec.depth, spec.width
    loss = 0.0
    gradient = weights.new_zeros(L, d, d)
    H = weights.new_zeros(L, d, d, L, d, d)  # layer, column, row; layer, column, row
    for part in within(memory, data, 6 * weights.numel(), weights):  # a sample has some six d x d matrices per layer
        loss += _add(H, gradient, spec, weights, part)
    matrix = H.view(spec.parameters, spec.parameters)
    _mirror(matrix, d * d)
    return ShortcutHessian(loss, gradient.mT.flatten(), matrix, route)


def _add(H: Tensor, gradient: Tensor, spec: ShortcutSpec, weights: Tensor, data: Data) -> float:
    """Adds to the gradient and, at and below the diagonal of blocks, to the Hessian; returns the loss.

    p counts patterns: the samples, each a single row q; or one pattern, whose rows q are the d unit vectors.
    """
    axis = 0 if isinstance(data, Moments) else 1
    seen = Seen()
    results = outputs(spec, weights, data.x.unsqueeze(axis), seen=seen)
    loss, errors = data.loss(results.squeeze(axis))
    errors = errors.unsqueeze(axis)  # p, q, output
    patterns, d = len(errors), spec.width
    eye = torch.eye(d, dtype=weights.dtype, device=weights.device).expand(patterns, d, d)
    maps = torch.stack(backward(spec, weights, seen, eye), 1)  # p, layer, output, row
    inputs = torch.stack(seen.inputs, 1)  # p, layer, q, column
    weighted = data.sxx @ inputs if isinstance(data, Moments) else inputs / data.total
    deltas = torch.einsum("pqo,paoi->paqi", errors, maps)
    gradient += torch.einsum("paqi,paqj->aij", deltas, inputs)
    for a, between in enumerate(_between(spec, weights, seen, eye)):
        to = a + 1
        inner = torch.einsum("pqj,pbql->pbjl", inputs[:, a], weighted[:, :to])
        outer = torch.einsum("poi,pbok->pbik", maps[:, a], maps[:, :to])
        H[a, :, :, :to] += torch.einsum("pbjl,pbik->jiblk", inner, outer)
        if a:
            mixed = torch.einsum("pqi,pbql->pbil", deltas[:, a], inputs[:, :a])
            H[a, :, :, :a] += torch.einsum("pbjk,pbil->jiblk", between, mixed)
    return float(loss)


def _between(spec: ShortcutSpec, weights: Tensor, seen: Seen, eye: Tensor) -> Iterator[Tensor]:
    """For each layer, the maps from what the layers before it put out to what it takes in: p, layer before, d, d."""
    state = eye.new_zeros(len(eye), 0, *eye.shape[1:])  # to the state before the unit
    for unit in range(spec.units):
        branch = _rows_scaled(state, seen.entries[unit])
        for layer in spec.layers(unit):
            yield branch
            branch = torch.cat([weights[layer] @ branch, eye.unsqueeze(1)], 1)
            branch = _rows_scaled(branch, seen.slopes[layer])
        if spec.n:
            branch[:, : state.shape[1]] += state
        state = branch


def _rows_scaled(maps: Tensor, slope: Tensor | None) -> Tensor:
    """p, layer, d, d by p, 1, d"""
    return scaled(maps, None if slope is None else slope.unsqueeze(-1))


def _mirror(matrix: Tensor, block: int) -> None:
    """Fills a matrix of blocks above their diagonal; after it, the matrix is exactly symmetric."""
    for start in range(0, len(matrix), block):
        own = slice(start, start + block)
        matrix[:start, own] = matrix[own, :start].T
        matrix[own, own] = (matrix[own, own] + matrix[own, own].T) / 2


# -- numbers of its whole spectrum, in float64


def spectrum_numbers(spec: ShortcutSpec, weights: Tensor, moments: Moments) -> dict[str, float]:
    """index: the share of negative eigenvalues, except those that are rounding noise."""
    at = shortcut_hessian(spec, weights, moments)
    values = torch.linalg.eigvalsh(at.matrix)
    magnitudes = values.abs()
    largest, tenth = float(magnitudes.max()), float(magnitudes.quantile(SMALL_QUANTILE))
    return {
        "loss": at.loss,
        "gradient": float(at.gradient.norm()),
        "largest": largest,
        "tenth": tenth,
        "index": float((values < -RELATIVE_NOISE * largest).double().mean()),
    }


def log_condition(largest: Any, tenth: Any) -> numpy.ndarray:
    """log10 of largest / tenth; NaN where that is above LOG_CEILING, and hence rounding noise."""
    largest, tenth = numpy.asarray(largest, float), numpy.asarray(tenth, float)
    fine = tenth > RELATIVE_NOISE * largest
    return numpy.where(fine, numpy.log10(largest / numpy.where(fine, tenth, 1.0)), numpy.nan)
