"""`ss.trace`: from a model and a batch to its trunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.trace.export import call_untouched, does_not_run, export, in_full_precision
from skipscope.trace.graph_trunk import GraphTrunk
from skipscope.trace.inputs import Inputs
from skipscope.trace.module_trunk import ModuleTrunk
from skipscope.trace.running_statistics import calibrated
from skipscope.trace.structure import Structure
from skipscope.trace.trunk import Trunk
from skipscope.trace.undisturbed import undisturbed, unwrapped

REPLAY_TOLERANCE = 1e-3
ROUNDING_UNITS = 100  # of the output's type, by which two runs of a deterministic model may differ


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
    inputs.check_device(model)
    expected = None if inputs.is_meta(model) else own_output(model, inputs)
    trunk: Trunk
    if units is not None:
        trunk = ModuleTrunk(model, inputs, units, notes, dtype)
    else:
        program, more = export(model, inputs)
        trunk = GraphTrunk(Structure(program), batch_axis, notes + more, dtype)
    if expected is not None:
        _check_replay(trunk, inputs, expected)
    return trunk


def own_output(model: nn.Module, inputs: Inputs) -> Any:
    """What the model computes; refused where it does not run, and where a second run gives something else."""
    try:
        first, second = (call_untouched(model, inputs, seed) for seed in (0, 1))
        error = relative_error(second, first)
        if not error:
            return first
        again = relative_error(call_untouched(model, inputs, 0), first)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as own:  # whatever the user's forward raises
        raise does_not_run(model, inputs, own) from own
    # Kernels that add in no fixed order differ a little, and on average as much when the random numbers are the same;
    # a difference of a few roundings says nothing, for one pair of runs may agree to the last bit and another not.
    rounding = ROUNDING_UNITS * max((torch.finfo(leaf.dtype).eps for leaf in _floats(first)), default=0.0)
    if error > REPLAY_TOLERANCE or error > max(10 * again, rounding):
        raise InputError(
            f"two runs of {type(model).__name__} on one batch differ by a relative error of {error:.1e}: its forward "
            "draws random numbers in evaluation mode too (dropout called with training=True, torch.rand), so it is no "
            "function of its input; make it deterministic in evaluation mode"
        )
    return first


def _check_replay(trunk: Trunk, inputs: Inputs, expected: Any) -> None:
    """The graph must compute what the model computes; anything else would measure another network."""
    with undisturbed(trunk.model):
        point = trunk.at(inputs)
        found = trunk.replay(inputs)
    error = relative_error(found, expected)
    if not error <= REPLAY_TOLERANCE:
        raise TraceError(
            f"replaying the graph of {type(trunk.model).__name__} differs from its own output by a relative error of "
            f"{error:.1e}; the model may depend on something outside its inputs and weights. "
            "Name the modules of its residual units instead: ss.trace(model, x, units=['path.of.module', ...])"
        )
    finite = [torch.isfinite(leaf) for leaf in _floats(expected)]
    if not all(some.all() for some in finite):
        where = point.first_not_finite() or "the code after the last unit"
        trunk._notes.insert(0, f"the output has NaN or infinite entries, which first arise in {where}")
    # Where nothing is finite there is nothing to compare.
    trunk.replay_error = error if not finite or any(some.any() for some in finite) else None


def _floats(output: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel()]


def relative_error(found: Any, expected: Any) -> float:
    """The largest difference over the largest entry, over all floating outputs; equal non-finite entries agree."""
    worst = 0.0
    for a, b in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        if isinstance(b, Tensor) and b.is_floating_point() and b.numel():
            finite = torch.isfinite(b)
            if a.shape != b.shape or not _same_outside(finite, a, b):
                return float("inf")
            if finite.any():
                scale = b[finite].abs().max().item() or 1.0
                worst = max(worst, (a[finite] - b[finite]).abs().max().item() / scale)
    return worst


def _same_outside(finite: Tensor, a: Tensor, b: Tensor) -> bool:
    """Are the entries that are not finite the same ones: NaN, or infinite of one sign?"""
    if not torch.equal(finite, torch.isfinite(a)):
        return False
    ours, theirs = a[~finite], b[~finite]
    return bool(((ours == theirs) | (ours.isnan() & theirs.isnan())).all())
