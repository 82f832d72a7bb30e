"""What a measurement is made of: which units, at which samples, under which labels, in columns of which width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from skipscope.errors import InputError
from skipscope.linear import Operator
from skipscope.trace import Point, Span, Trunk, Unit
from skipscope.trace.trunk import Path

Units = Sequence[int | str] | None  # names or indices; None for all
Samples = int | Sequence[int] | None  # how many of the first, or which; None for all

PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum")  # names of operations


def refuse_batch_statistics(model: nn.Module) -> None:
    """A batch norm without running statistics takes those of the batch, in evaluation too."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise InputError(
                f"{name or type(model).__name__} is a batch norm without running statistics: what one sample gives "
                "depends on the others, so that no sample can be measured alone; build it with track_running_stats=True"
            )


def chosen_units(trunk: Trunk, units: Units) -> list[Unit]:
    if not trunk.units:
        raise InputError(f"{type(trunk.model).__name__} has no residual units to measure")
    if isinstance(units, str):
        raise InputError(f"units={units!r}: expected a list of names or indices")
    return list(trunk.units) if units is None else [trunk[key] for key in units]


def point_of(trunk: Trunk, x: Any, samples: Samples = None) -> Point:
    """x: a batch of model inputs, or a point."""
    point = x if isinstance(x, Point) else trunk.at(x)
    if samples is None:
        return point
    indices = sample_indices(point.batch, samples)
    if indices == list(range(point.batch)):
        return point
    taken = point.take(indices)
    if taken is None:
        raise InputError(
            f"samples={samples}: the model can only run with all {point.batch} samples that it was traced with; trace "
            "it with the batch that is to be measured"
        )
    return taken


def sample_indices(batch: int, samples: Samples) -> list[int]:
    """Positions in the batch."""
    if samples is None:
        return list(range(batch))
    indices = list(range(samples)) if isinstance(samples, int) else list(samples)
    if not indices or min(indices) < 0 or max(indices) >= batch:
        raise InputError(f"samples={samples}: expected positions in a batch of {batch}, or how many of the first")
    return indices


def labels(units: Sequence[Unit]) -> dict[str, Any]:
    """Coordinates of the dimension `unit`: name, kinds of skip and branch, number of the stage from 1 (-1 for none)."""
    return {
        "unit": [unit.name for unit in units],
        "skip": ("unit", [unit.kind for unit in units]),
        "branch": ("unit", [kind_of_branch(unit.branch.operations) for unit in units]),
        "stage": ("unit", [-1 if unit.stage is None else unit.stage for unit in units]),
    }


def kind_of_branch(operations: Sequence[str]) -> str:
    """What a branch does, in one word: attention, convolution, linear (matrix products alone), other."""
    products = sum(name in PRODUCTS for name in operations)
    if any("attention" in name for name in operations) or ("softmax" in operations and products >= 2):
        return "attention"
    if any(name.startswith("conv") for name in operations):
        return "convolution"
    return "linear" if products else "other"


def attributes(measure: str, trunk: Trunk | None = None, **more: Any) -> dict[str, Any]:
    """What every dataset of a measurement says of itself; notes: what a reader must know of the trunk."""
    notes = {} if trunk is None else {"notes": "; ".join(trunk.notes)}
    return {"measure": measure, "mode": "eval", **more, **notes}


def exit_axis(unit: Unit, path: Unit | Path) -> int:
    """The axis of the samples in what leaves a unit, its branch or its skip."""
    return unit.batch_axis if path.exit_axis is None else path.exit_axis


def filled(values: Tensor, width: int, value: float | bool = float("nan")) -> Tensor:
    """(..., n) -> (..., width)."""
    return torch.nn.functional.pad(values, (0, width - values.shape[-1]), value=value)


class Jacobians(Mapping[str, Operator]):
    """Of spans at a point, by name; made when they are looked up: each keeps the graph of its transposed products."""

    def __init__(self, spans: Sequence[Span], point: Point) -> None:
        self._spans, self._point = {span.name: span for span in spans}, point

    def __getitem__(self, name: str) -> Operator:
        return self._spans[name].jacobian(self._point)

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)
