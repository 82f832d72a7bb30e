"""What a look will take, in seconds, before it has run: small parts of it are timed before the training.

singular        of one unit for every shape of state, one cycle of the iteration (or the whole, where matrices are
                assembled), times the cycles that it usually needs
alignment       from the same times: more vectors, and more that is asked of them
sharpness       one product with the Hessian, times the products that its largest eigenvalue usually needs
stable_rank,    of one weight of every shape; of shapes with more work than WORK the time is that of a smaller one,
conditioning    times the work
streams         a look at the sizes

A guess may be wrong by some factor: how fast an iteration converges changes with the weights (docs/monitor.md).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from skipscope.monitor.measures import (
    Look,
    condition_of_state,
    condition_of_weights,
    largest_value,
    leading_value,
    sizes,
    trained_weights,
)
from skipscope.monitor.sharpness import hessian_of
from skipscope.monitor.untouched import forget_memory_of, wait_for
from skipscope.trace import Unit

PRODUCTS = 35  # with a Hessian: 27 to 37 in small residual networks and transformers
CYCLES = 2.0  # of the iteration for one singular value: the first is 70 products of 110 to 240
ALIGNED = {"dense": 1.5, "iterative": 6.0}  # alignment of a unit over its largest singular value, by the latter's route
PAIRED = 0.02  # of that, for every unit whose vectors the Jacobian is applied to
WORK = 2**28  # multiplications to decompose a weight that is tried


def expected(names: Sequence[str], look: Look) -> dict[str, float]:
    """By measure, in seconds; of one that fails, what it took to fail."""
    found: dict[str, float] = {}
    ways: list[tuple[tuple[str, ...], Callable[[Look], tuple[float, ...]]]] = [
        (("sizes", "streams"), _of_passes),
        (("singular", "alignment"), _of_jacobians),
        (("sharpness",), _of_sharpness),
        (("stable_rank",), _of_stable_rank),
        (("conditioning",), _of_conditioning),
    ]
    for measured, seconds_of in ways:
        if set(measured) & {*names}:
            begun = time.perf_counter()
            try:
                seconds = seconds_of(look)
            except Exception as error:  # whatever a measure raises: it is said at its first look
                forget_memory_of(error)
                seconds = (time.perf_counter() - begun,) * len(measured)
            found |= zip(measured, seconds, strict=True)
    return {name: found[name] for name in names}


def _of_passes(look: Look) -> tuple[float, float]:
    seconds, _ = _timed(look, lambda: sizes(replace(look)))  # with its own forward pass
    return seconds, seconds


def _of_jacobians(look: Look) -> tuple[float, float]:
    """Of all units' largest singular values, and of the alignment."""
    kinds: dict[tuple[int, ...], list[Unit]] = {}
    for unit in look.trunk.units:
        kinds.setdefault((*unit.entry_shape, *unit.exit_shape), []).append(unit)
    singular = alignment = 0.0
    for units in kinds.values():
        seconds, found = _timed(look, partial(largest_value, units[0], look, max_products=1))
        seconds *= len(units) * (1.0 if found.route == "dense" else CYCLES)
        singular += seconds
        alignment += seconds * ALIGNED[found.route] * (1 + PAIRED * len(units))
    return singular, alignment


def _of_sharpness(look: Look) -> tuple[float]:
    assert look.objective is not None
    H = hessian_of(look.trunk, look.inputs, look.objective)[0]
    vector = torch.zeros(1, H.shape[2], 1, dtype=H.dtype, device=H.device)
    return (PRODUCTS * _timed(look, partial(H.matmat, vector))[0],)


def _of_stable_rank(look: Look) -> tuple[float]:
    weights = trained_weights(look)
    return (_over_shapes(look, lambda name: leading_value(weights[name], look.seed)),)


def _of_conditioning(look: Look) -> tuple[float]:
    seconds = _over_shapes(look, lambda name: condition_of_weights(look, [name]))
    kinds = Counter((unit.entry_shape, unit.batch_axis) for unit in look.trunk.units)
    for unit in look.trunk.units:
        count = kinds.pop((unit.entry_shape, unit.batch_axis), 0)
        if count:
            seconds += count * _timed(look, partial(condition_of_state, look, unit))[0]
    return (seconds,)


def _over_shapes(look: Look, measure: Callable[[str], Any]) -> float:
    """measure: of the weight of a name."""
    names: dict[tuple[int, ...], list[str]] = {}
    works: dict[tuple[int, ...], int] = {}
    for name, weight in trained_weights(look).items():
        rows, columns = weight.flatten(1).shape if weight.dim() > 1 else (1, weight.numel())
        names.setdefault(tuple(weight.shape), []).append(name)
        works[tuple(weight.shape)] = rows * columns * min(rows, columns)
    total = seconds = 0.0
    tried = 0
    for shape in sorted(names, key=works.__getitem__):
        if not tried or works[shape] <= WORK:
            seconds, tried = _timed(look, partial(measure, names[shape][0]))[0], works[shape]
        total += len(names[shape]) * seconds * works[shape] / tried
    return total


def _timed(look: Look, run: Callable[[], Any]) -> tuple[float, Any]:
    """The shorter of two runs, since the first one loads what it needs; and what was found."""
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        found = run()
        wait_for(look.trunk.model)
        times.append(time.perf_counter() - begun)
    return min(times), found
