"""What iterations refuse: options out of range, products that are not finite, transposed products that are none."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TypeVar, cast, get_args

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.operator import Operator
from skipscope.spectrum.plan import Route

Name = TypeVar("Name", bound=str)
TRANSPOSE_TOLERANCE = 1e-3  # between a product and the transposed one: rounding is far below, a mistake above


def named_route(route: Name | None) -> Name:
    """Until version 0.1 the route "auto" was called None."""
    if route is None:
        warnings.warn('route=None is now route="auto"; the old form works until the next release', FutureWarning, 3)
        return cast(Name, "auto")
    return route


def check_options(
    operator: Operator,
    k: int,
    which: str,
    known: Sequence[str],
    tol: float | None,
    block: int | None,
    max_products: int | None,
    route: str,
) -> None:
    _, m, n = operator.shape
    if not 1 <= k <= min(m, n):
        raise InputError(
            f"{operator.name} of shape {operator.shape} has {min(m, n)} values per sample: expected k from 1 to "
            f"{min(m, n)}, got {k}"
        )
    if which not in known:
        raise InputError(f"expected which to be one of {', '.join(known)}, got {which!r}")
    if route not in get_args(Route):
        raise InputError(f"route={route!r}: expected one of {', '.join(get_args(Route))}")
    if tol is not None and not 0 <= tol < 1:
        raise InputError(f"expected a tolerance relative to the largest value, from 0 to 1, got {tol}")
    if block is not None and block < 1:
        raise InputError(f"expected a block of at least one vector, got {block}")
    if max_products is not None and max_products < 1:
        raise InputError(f"expected at least one product per sample, got max_products={max_products}")
    if operator.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{operator.name} is {operator.dtype}; its spectrum needs float32 or float64")


def check_finite(product: Tensor, operator: Operator, samples: Sequence[int]) -> None:
    finite = product.isfinite().flatten(1).all(1)  # B
    if not finite.all():
        bad = [sample for sample, good in zip(samples, finite.tolist(), strict=True) if not good]
        raise InputError(
            f"products of {operator.name} of shape {operator.shape} are NaN or infinite for samples {bad}; "
            "look for NaN, infinite or overflowing weights and activations there"
        )


def check_adjoint(found: Tensor, expected: Tensor, operator: Operator, scale: Tensor) -> None:
    """Entries (B, p, b) that the operator and its transpose must agree on, at a scale (B)."""
    error = (found - expected).abs().flatten(1).amax(1)  # B
    if (error > TRANSPOSE_TOLERANCE * scale).any():
        raise InputError(
            f"{operator.name} of shape {operator.shape}: a product and the transposed product differ by "
            f"{error.max().item():.1e} where they must agree; the operator is not symmetric, or its rmatmat is not the "
            "transpose of its matmat"
        )
