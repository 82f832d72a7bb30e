"""`ss.trace`: from a model and a batch to its trunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from skipscope.errors import InputError, SkipscopeError, TraceError
from skipscope.trace.export import does_not_run, export, in_full_precision, record
from skipscope.trace.graph_trunk import GraphTrunk
from skipscope.trace.inputs import Inputs, signature_of
from skipscope.trace.model_output import REPLAY_TOLERANCE, call_untouched, floats, relative_error
from skipscope.trace.module_trunk import ModuleTrunk
from skipscope.trace.read_weights import ReadWeights, halves_of, is_on_disk
from skipscope.trace.recorded_program import RecordedProgram
from skipscope.trace.running_statistics import calibrated
from skipscope.trace.structure import Structure
from skipscope.trace.trunk import Trunk
from skipscope.trace.undisturbed import undisturbed, unwrapped

DETECTION = "torchvision.models.detection"
ROUNDING_UNITS = 100  # of the output's type, by which two runs of a deterministic model may differ


def trace(
    model: nn.Module, x: Any, *, units: Sequence[str] | None = None, batch_axis: int = 0, calibrate: bool = False
) -> Trunk:
    """Find the residual units of `model`.

    x: a batch of inputs: a tensor, a tuple of positional or a dict of keyword inputs.
    units: paths of the modules that are residual units or hold them, for a model that has no graph.
    batch_axis: the axis of the inputs that runs over samples.
    calibrate: give batch norms that have never seen data the statistics of this batch, on a copy of the model.

    The model is left as it was; its weights are shared, so later changes of them are seen by later measurements.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a torch.nn.Module as the model, got {type(model).__name__}")
    model = unwrapped(model)
    _check_kind(model)
    units = _checked_names(units)
    inputs = Inputs.of(model, x, batch_axis)
    if units is None and not calibrate and (trunk := _with_read_weights(model, inputs)) is not None:
        return trunk
    _check_in_memory(model, inputs)
    model, inputs, notes = in_full_precision(model, inputs)
    dtype = torch.float32 if notes else None
    if calibrate:
        model, more = calibrated(model, inputs)
        notes = notes + more
    inputs.check_device(model)
    expected = None if inputs.is_meta(model) else own_output(model, inputs)
    if units is not None:
        trunk = ModuleTrunk(model, inputs, units, notes, dtype)
        if expected is not None:
            _check_replay(trunk, inputs, expected)
    else:
        trunk = _by_graph(model, inputs, expected, notes, dtype)
    if expected is not None:
        _note_mixed_samples(trunk, inputs, expected)
    return trunk


def _with_read_weights(model: nn.Module, inputs: Inputs) -> Trunk | None:
    """The trunk of a model whose weights are converted as they are read: half precision in float32, or weights on disk
    on another device. None where it has none such, or needs its weights in place: code that compares their types."""
    halves = halves_of(model)
    device = inputs.tensors()[0].device
    moved = is_on_disk(model) and any(weight.device != device for weight in model.parameters())
    if not (halves or moved) or inputs.is_meta(model):
        return None
    dtype = torch.float32 if halves else None
    notes = [f"{' and '.join(halves)} weights: measured in float32, to which they are converted as they are read"]
    reading, given = ReadWeights(model, dtype), inputs if dtype is None else inputs.floating(dtype)
    try:
        inputs.check_device(model)
        with reading.in_place(device):
            expected = own_output(model, given)
        program, more = export(reading.skeleton(), given.map(Tensor.cpu), reading)
        trunk = GraphTrunk(Structure(program), inputs.axis, (notes if halves else []) + more, dtype)
        _check_measurable(trunk, given)
        _check_replay(trunk, given, expected)
        with reading.in_place(device):
            _note_mixed_samples(trunk, given, expected)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # whatever the user's forward, or torch, says to converted weights
        if not is_on_disk(model):
            return None
        if isinstance(error, SkipscopeError):
            raise
        raise TraceError(
            f"{type(model).__name__} cannot be measured with weights on disk: {str(error).splitlines()[0]}; load it "
            "into memory, without memory= and on_disk"
        ) from error
    return trunk


def _check_in_memory(model: nn.Module, inputs: Inputs) -> None:
    """Modules that run as they are have their weights where they are."""
    homes = {weight.device.type for weight in model.parameters()}
    if is_on_disk(model) and (away := {tensor.device.type for tensor in inputs.tensors()} - homes):
        raise InputError(
            f"the weights of {type(model).__name__} are on disk, and the batch on {', '.join(sorted(away))}: with "
            "units= or calibrate=True its modules run where its weights are; pass the batch on the cpu, or load the "
            "model into memory"
        )


def _by_graph(
    model: nn.Module, inputs: Inputs, expected: Any, notes: list[str], dtype: torch.dtype | None
) -> GraphTrunk:
    """From the exported graph; from a recorded one where that does not compute what the model does."""
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                f"{path} is a TorchScript module, whose operations cannot be seen; put the original nn.Module that it "
                "was made from in its place, or name modules that are units and not scripts: units=['path.of.module']"
            )
    program, more = export(model, inputs)
    trunk = GraphTrunk(Structure(program), inputs.axis, notes + more, dtype)
    _check_measurable(trunk, inputs)
    if expected is None:
        return trunk
    try:
        _check_replay(trunk, inputs, expected)
    except torch.OutOfMemoryError:
        raise
    except (TraceError, RuntimeError) as failure:  # masks that an export builds in another way, sizes that it fixed
        if isinstance(program, RecordedProgram):
            raise
        program, more = record(model, inputs, str(failure).split(";")[0].splitlines()[0])
        trunk = GraphTrunk(Structure(program), inputs.axis, notes + more, dtype)
        _check_replay(trunk, inputs, expected)
    return trunk


def _check_kind(model: nn.Module) -> None:
    """Models that are no functions of a batch, or that cannot be looked into."""
    name = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            f"expected a torch.nn.Module written in Python, got a TorchScript module ({name}), whose operations cannot "
            "be seen; pass the original nn.Module that it was made from"
        )
    takes = next(iter(signature_of(model).parameters), "")
    if takes == "images" and any(kind.__module__.startswith(DETECTION) for kind in type(model).__mro__):
        part = "backbone" if isinstance(getattr(model, "backbone", None), nn.Module) else "path.of.a.part"
        raise InputError(
            f"{name} takes a list of images and returns a list of boxes, so it is no function of one batch; pass a "
            f"part of it that takes a batch: ss.trace(model.{part}, torch.rand(2, 3, 224, 224))"
        )


def _checked_names(units: Any) -> list[str] | None:
    if units is None:
        return None
    if isinstance(units, str):
        raise InputError(f"units={units!r}: expected a list of paths of modules, got a string; pass units=[{units!r}]")
    named = list(units) if isinstance(units, Iterable) else [units]
    if not all(isinstance(unit, str) for unit in named):
        raise InputError(
            f"units={units!r}: expected a list of paths of modules, such as ['layer1.0']; see model.named_modules()"
        )
    return named


def _check_measurable(trunk: GraphTrunk, inputs: Inputs) -> None:
    """Where no state at all has a batch axis, the axis that was taken for the batch is to blame, not the model."""
    if trunk.units or not any(left.kind == "unmeasurable" for left in trunk.left_out):
        return
    why = f"no state of {type(trunk.model).__name__} has an axis for the batch of {inputs.batch}"
    if inputs.tensors()[0].dim() == 1:
        raise InputError(f"{why}: {inputs.about_the_axis()}")
    trunk._notes.insert(0, f"{why}: {inputs.about_the_axis()}")


def _note_mixed_samples(trunk: Trunk, inputs: Inputs, expected: Any) -> None:
    if _mixes_samples(trunk.model, inputs, expected):
        trunk._notes.insert(
            0,
            "the output of a sample changes with the other samples. If the model computes nothing over the whole "
            f"batch, {inputs.about_the_axis()}",
        )


def _mixes_samples(model: nn.Module, inputs: Inputs, expected: Any) -> bool:
    """Does the output of some samples change when others do?"""
    norms = (module for module in model.modules() if isinstance(module, _BatchNorm))
    if inputs.batch < 2 or any(norm.running_mean is None for norm in norms):
        return False  # statistics of the batch mix samples too, and whoever measures is told so
    half = inputs.batch // 2
    others = inputs.map(lambda t: _with_other_half(t, inputs.axis, half) if inputs.carries(t) else t)
    try:
        found = call_untouched(model, others)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception:  # values that the model does not take
        return False
    for a, b in zip(floats(found), floats(expected), strict=False):
        if a.shape == b.shape and inputs.carries(a):
            rest = [t.narrow(inputs.axis, half, inputs.batch - half) for t in (a, b)]
            if relative_error(*rest) > REPLAY_TOLERANCE:
                return True
    return False


def _with_other_half(tensor: Tensor, axis: int, half: int) -> Tensor:
    """The first samples replaced by the next ones."""
    return torch.cat([tensor.narrow(axis, half, half), tensor.narrow(axis, half, tensor.shape[axis] - half)], axis)


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
    rounding = ROUNDING_UNITS * max((torch.finfo(leaf.dtype).eps for leaf in floats(first)), default=0.0)
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
    recorded = (program.tolerance for program in trunk.programs() if isinstance(program, RecordedProgram))
    if not error <= max(REPLAY_TOLERANCE, *recorded, 0.0):
        raise TraceError(
            f"replaying the graph of {type(trunk.model).__name__} differs from its own output by a relative error of "
            f"{error:.1e}; the model may depend on something outside its inputs and weights. "
            "Name the modules of its residual units instead: ss.trace(model, x, units=['path.of.module', ...])"
        )
    finite = [torch.isfinite(leaf) for leaf in floats(expected)]
    if not all(some.all() for some in finite):
        where = point.first_not_finite() or "the code after the last unit"
        trunk._notes.insert(0, f"the output has NaN or infinite entries, which first arise in {where}")
    # Where nothing is finite there is nothing to compare.
    trunk.replay_error = error if not finite or any(some.any() for some in finite) else None
