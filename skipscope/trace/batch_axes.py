"""Which axis of a state runs over the samples, where no symbol for the batch says so.

Sizes alone do not decide it: in a batch of as many samples as a sequence has tokens, two axes have that size. When the
samples of a batch change places, those of a state change places in the same way, along its batch axis and no other.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from skipscope.numerics import measuring
from skipscope.trace.inputs import Inputs
from skipscope.trace.program import Program, Values

SAME_WITHIN = 1e-3  # of the largest entry; a sample's values depend a little on its place in a batch


def axis_by_rolling(value: Tensor, rolled: Tensor, batch: int, first: int) -> int | None:
    """value, rolled: at a batch and at the same batch with its samples moved on by one. first: the axis to prefer where
    several fit, as all do that have one place only."""
    axes = [axis for axis, size in enumerate(value.shape) if size == batch]
    if not value.is_meta:  # where there are no values, nothing will be measured either
        axes = [axis for axis in axes if value.shape == rolled.shape and _equal(value.roll(1, axis), rolled)]
    return first if first in axes else next(iter(axes), None)


def axis_by_doubling(value: Tensor, doubled: Tensor, batch: int) -> int | None:
    """doubled: at a batch of twice the size."""
    if value.dim() != doubled.dim():
        return None
    axes = [axis for axis, (a, b) in enumerate(zip(value.shape, doubled.shape, strict=True)) if a != b]
    return axes[0] if len(axes) == 1 and (value.shape[axes[0]], doubled.shape[axes[0]]) == (batch, 2 * batch) else None


def axes_of_nodes(program: Program, inputs: Inputs) -> dict[fx.Node, int | None]:
    """The batch axis of every tensor of a graph that holds for one batch size, found by running it twice."""
    turned = inputs.rolled()
    before, after = (program.bind(some.args, some.kwargs) for some in (inputs, turned))
    found = {node: _axis(before, after, node, inputs) for node in program.inputs}
    last = {argument: node for node in program.nodes for argument in node.all_input_nodes}
    ends: dict[fx.Node, list[fx.Node]] = {}
    for argument, node in last.items():
        ends.setdefault(node, []).append(argument)
    with torch.no_grad(), measuring():
        for node in program.nodes:
            for values in (before, after):
                program.run([node], values, inputs.batch)
            found[node] = _axis(before, after, node, inputs)
            for dead in ends.get(node, ()):
                before.pop(dead, None), after.pop(dead, None)
    return found


def _axis(before: Values, after: Values, node: fx.Node, inputs: Inputs) -> int | None:
    value, rolled = before.get(node), after.get(node)
    if not isinstance(value, Tensor) or not isinstance(rolled, Tensor):
        return None
    return axis_by_rolling(value, rolled, inputs.batch, inputs.axis)


def _equal(a: Tensor, b: Tensor) -> bool:
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        return False
    a, b = a[finite], b[finite]
    return not a.numel() or bool((a - b).abs().max() <= SAME_WITHIN * a.abs().max())
