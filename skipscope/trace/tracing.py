"""`ss.trace`: from a model and a batch to its trunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.trace.export import call_untouched, export, in_full_precision
from skipscope.trace.graph_trunk import GraphTrunk
from skipscope.trace.inputs import Inputs
from skipscope.trace.module_trunk import ModuleTrunk
from skipscope.trace.running_statistics import calibrated
from skipscope.trace.structure import Structure
from skipscope.trace.trunk import Trunk
from skipscope.trace.undisturbed import undisturbed, unwrapped

REPLAY_TOLERANCE = 1e-3


def trace(
    model: nn.Module, x: Any, *, units: Sequence[str] | None = None, batch_axis: int = 0, calibrate: bool = False
) -> Trunk:
    """Find the residual units of `model`.

    x: a batch of inputs: a tensor, a tuple of positional or a dict of keyword inputs.
    units: paths of the modules that are residual units, for a model that cannot be exported.
    batch_axis: the axis of the inputs that runs over samples.
    calibrate: give batch norms that have never seen data the statistics of this batch, on a copy of the model.

    The model is left as it was; its weights are shared, so later changes of them are seen by later measurements.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a torch.nn.Module as the model, got {type(model).__name__}")
    model = unwrapped(model)
    inputs = Inputs.of(model, x, batch_axis)
    model, inputs, notes = in_full_precision(model, inputs)
    dtype = torch.float32 if notes else None
    if calibrate:
        model, more = calibrated(model, inputs)
        notes = notes + more
    trunk: Trunk
    if units is not None:
        inputs.check_device(model)
        trunk = ModuleTrunk(model, inputs, units, notes, dtype)
    else:
        program, more = export(model, inputs)
        trunk = GraphTrunk(Structure(program), batch_axis, notes + more, dtype)
    if not any(t.is_meta for t in model.parameters()):
        _check_replay(trunk, inputs)
    return trunk


def _check_replay(trunk: Trunk, inputs: Inputs) -> None:
    """The graph must compute what the model computes; anything else would measure another network."""
    expected = call_untouched(trunk.model, inputs)
    with undisturbed(trunk.model):
        trunk.at(inputs)
        found = trunk.replay(inputs)
    trunk.replay_error = relative_error(found, expected)
    if not trunk.replay_error <= REPLAY_TOLERANCE:
        raise TraceError(
            f"replaying the graph of {type(trunk.model).__name__} differs from its own output by a relative error of "
            f"{trunk.replay_error:.1e}; the model may depend on something outside its inputs and weights. "
            "Name the modules of its residual units instead: ss.trace(model, x, units=['path.of.module', ...]), "
            "or --units path.of.module,... on the command line"
        )


def relative_error(found: Any, expected: Any) -> float:
    """The largest difference over the largest entry, over all floating outputs; equal non-finite entries agree."""
    worst = 0.0
    for a, b in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        if isinstance(b, Tensor) and b.is_floating_point() and b.numel():
            finite = torch.isfinite(b)
            if not torch.equal(finite, torch.isfinite(a)):
                return float("inf")
            if finite.any():
                scale = b[finite].abs().max().item() or 1.0
                worst = max(worst, (a[finite] - b[finite]).abs().max().item() / scale)
    return worst
