"""How far a Jacobian lens can be trusted: its sweep against backpropagation, its floating type against float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from skipscope.linear.derivative import attempt
from skipscope.measure.chain import RETURNS_STATE, Chain, ChainAt
from skipscope.measure.layers import float_tensors
from skipscope.measure.lens_sweep import Arithmetic, Sweep, pulled
from skipscope.numerics import normal, random_numbers
from skipscope.trace import Point, Unit

EXACT = Arithmetic(torch.float64)


def arithmetic_error(
    chain: ChainAt, places: Sequence[int], tokens: Sequence[int], arithmetic: Arithmetic, rows: Sequence[int]
) -> Tensor:
    """|rows of the lens - the same in float64|_F over the latter, for each layer; NaN where float64 is not possible.

    In float64 the states are computed again from the first one on, so that the rounding of the forward pass counts too.
    """
    if arithmetic == EXACT:
        return torch.zeros(len(places), dtype=torch.float64, device="cpu")
    if not all(link.span.in_any_type for link in chain.chain.links):
        return torch.full((len(places),), float("nan"), dtype=torch.float64, device="cpu")
    own, exact = (Sweep(chain, places, tokens, some).rows(rows) for some in (arithmetic, EXACT))
    return torch.stack([(own[place] - exact[place]).norm() / exact[place].norm() for place in places])


def sweep_error(chain: Chain, point: Point, units: Sequence[Unit]) -> float:
    """Largest relative difference, over the units' entries, of two gradients of the model's output along a random
    direction: pulled back link by link, and by backpropagation through the whole model. NaN where the chain does not
    lead to the output."""
    at = chain.at(point)
    if at.head is None and chain.why_no_head != RETURNS_STATE:
        return float("nan")
    states = at.states()
    own = Arithmetic(states[-1].dtype)
    output = states[-1] if at.head is None else at.output(states[-1])
    direction = normal(output.shape, random_numbers("sweep")).to(output)
    cotangents = direction[None] if at.head is None else pulled(at.head, states[-1], direction[None], own)
    found: dict[int, Tensor] = {}
    for place in reversed(range(len(at.functions))):
        cotangents = pulled(at.functions[place], states[place], cotangents, own)
        found[place] = cotangents[0]

    def along(outputs: Any) -> Tensor:
        same = next(one for one in float_tensors(outputs) if one.requires_grad and one.shape == output.shape)
        return (same * direction).sum()

    gradients = attempt(lambda: point.gradients(along))
    if isinstance(gradients, str):
        return float("nan")
    differences = [_difference(found[chain.place(unit)], gradients[unit.index]) for unit in units]
    return float(torch.tensor(differences, device="cpu").max())  # NaN where one is


def _difference(found: Tensor, expected: Tensor | None) -> float:
    if expected is None:
        return float("inf")
    return float((found - expected).double().norm() / expected.double().norm())
