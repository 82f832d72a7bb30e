"""From a module and a batch to a functional `Program`, through `torch.export`.

The export is non-strict, with one named dimension for the batch; `functional` removes in-place operations and keeps
attention and norms whole. See `tidy` for what is then taken out of the graph.
"""

from __future__ import annotations

import gc
import inspect
import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.trace.batch_axes import axes_of_nodes
from skipscope.trace.coupled_streams import join_streams
from skipscope.trace.functional import functional
from skipscope.trace.inputs import Inputs
from skipscope.trace.model_output import call_untouched
from skipscope.trace.program import Program
from skipscope.trace.put_together import put_together
from skipscope.trace.read_weights import HALF, ReadWeights, halves_of, is_on_disk
from skipscope.trace.recorded_program import RecordedProgram, check_it_follows, recorded
from skipscope.trace.repeated_blocks import export_blocks_once
from skipscope.trace.running_statistics import copied
from skipscope.trace.tidy import tidy
from skipscope.trace.undisturbed import undisturbed

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
LARGEST_BATCH = 65535  # cuDNN's limit, which it puts into the graph as a guard


def in_full_precision(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs, list[str]]:
    """A half-precision model has casts in its graph: where its weights cannot be converted as they are read
    (`read_weights`), it is measured on a float32 copy, and the note says so."""
    halves = halves_of(model)
    if not halves:
        return model, inputs, []
    note = (
        f"{' and '.join(halves)} weights: measured in float32 on a copy of the model; "
        "later changes of the original's weights are not seen"
    )
    return full_precision_copy(model), inputs.floating(torch.float32), [note]


def full_precision_copy(model: nn.Module) -> nn.Module:
    """Of a model in half precision."""
    if is_on_disk(model):
        raise InputError(
            f"{type(model).__name__} has {' and '.join(halves_of(model))} weights on disk, and what was asked for "
            "needs a copy of it in float32; load it into memory, without memory= and on_disk"
        )
    return copied(model).float()


def export(model: nn.Module, inputs: Inputs, reading: ReadWeights | None = None) -> tuple[Program, list[str]]:
    """Export `model` at `inputs`; returns the program and notes for the reader of its results.

    reading: where `model` is a skeleton without values, how the weights of the model behind it are read. What cannot be
    exported is then refused, because a recording needs the values in place.
    """
    inputs.check_device(model)
    try:
        with undisturbed(model), _quiet(), _collecting_later():
            exported, example, note = _exported(model, inputs)
            exported = functional(exported)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as failure:  # the export raises many types; every one of them means that it did not work
        return _recorded(model, inputs, _reason(failure), reading)
    program = _program(model, exported, example.batch, inputs.axis)
    if reading is not None:
        program = program.of(reading.model)
        program.reading = reading
    tidy(program)
    if (size := _size_from_values(program)) is not None:
        return _recorded(model, inputs, size, reading)
    if program.batch_symbol is None:
        program.fixed_axes = axes_of_nodes(program, example)
    return program, [*([note] if note else []), *_casts(program)]


def _recorded(
    model: nn.Module, inputs: Inputs, why: str, reading: ReadWeights | None
) -> tuple[RecordedProgram, list[str]]:
    if reading is None:
        return record(model, inputs, why)
    raise TraceError(f"{type(model).__name__} cannot be exported: {why}")


def record(model: nn.Module, inputs: Inputs, why: str) -> tuple[RecordedProgram, list[str]]:
    """The second way: the graph of one pass. why: the first one did not work."""
    try:
        with _quiet():
            program = recorded(model, inputs)
            tidy(program)
            program.fixed_axes = axes_of_nodes(program, inputs)
            for join in (put_together, join_streams):
                if join(program):  # only now it is known which axes are the batch's
                    program.fixed_axes = axes_of_nodes(program, inputs)
            check_it_follows(program, inputs)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as second:  # whatever torch says to an operation that cannot be recorded
        raise _explained(model, inputs, why, second) from second
    program.why = why
    program.agrees_at(inputs)
    note = (
        f"torch.export cannot take the model ({why}), so its graph was recorded from one pass: it holds "
        f"only for batches of {inputs.batch} and for the branches that the values of this batch took"
    )
    return program, [note, *_casts(program)]


def _casts(program: Program) -> list[str]:
    """A note, where a float32 model computes parts of itself in half precision."""
    values = (node.meta.get("val") for node in program.nodes)
    held = {value.dtype for value in values if isinstance(value, Tensor)} & set(HALF)
    if not held:
        return []
    names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in held))
    return [
        f"parts of the model are computed in {names} (casts or autocast in its forward): states and float32 products "
        "carry that rounding; float64 Jacobians are evaluated without it"
    ]


def _exported(model: nn.Module, inputs: Inputs) -> tuple[ExportedProgram, Inputs, str | None]:
    """Try with every input that has the batch's size as batched, then only the first, then a fixed batch.

    Returns the export, the batch that it was made with, and a note. Where the batch has the size of something else, the
    exporter may take the two for one: then with a batch of twice the size.
    """
    free = inputs.at_least_two()
    count = sum(free.carries(t) for t in free.tensors())
    failure: Exception | None = None
    for carriers in dict.fromkeys((count, min(count, 1))):
        for example in (free, free.doubled()):
            try:
                exported = _with_batch(model, example, [t for t in example.tensors() if example.carries(t)][:carriers])
            except Exception as error:
                # The export raises many types; every one of them means that this way of exporting did not work.
                failure = failure or error
                break
            if _batch_symbol(_inputs_of(exported), inputs.axis) is not None:
                return exported, example, None
            failure = failure or TraceError(f"the exporter takes the batch for a fixed size of {example.batch}")
    try:
        exported = _with_batch(model, inputs, [])
    except Exception as error:
        raise (failure or error) from error
    return exported, inputs, f"the model's graph holds only for batches of {inputs.batch}: {_first_line(failure)}"


def _with_batch(model: nn.Module, example: Inputs, carriers: Sequence[Tensor]) -> ExportedProgram:
    batch = Dim("batch", min=1, max=LARGEST_BATCH)
    shapes = ShapesCollection()
    for tensor in carriers:
        shapes[tensor] = {example.axis: batch}
    return export_blocks_once(
        model,
        lambda: torch.export.export(
            model, example.args, example.kwargs, dynamic_shapes=shapes if carriers else None, strict=False
        ),
    )


def _inputs_of(exported: ExportedProgram) -> list[fx.Node]:
    names = {spec.arg.name for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}
    return [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in names]


def _program(model: nn.Module, exported: ExportedProgram, batch: int, axis: int) -> Program:
    graph = exported.graph
    placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    user: list[fx.Node] = []
    weights: dict[fx.Node, str] = {}
    constants: dict[fx.Node, Any] = {}
    for spec in exported.graph_signature.input_specs:
        node = placeholders[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            user.append(node)
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            assert spec.target is not None
            weights[node] = spec.target
        else:
            assert spec.target is not None
            constants[node] = exported.constants[spec.target]
    for node in graph.nodes:
        if node.op == "get_attr":
            constants[node] = getattr(exported.graph_module, str(node.target))
    outputs = graph.output_node()
    # Buffer updates come first among the outputs; the trunk is a function, so they are dropped.
    kept = [
        argument
        for argument, spec in zip(outputs.args[0], exported.graph_signature.output_specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    outputs.args = (tuple(kept),)
    return Program(
        model,
        graph,
        inputs=user,
        weights=weights,
        constants=constants,
        in_spec=exported.call_spec.in_spec,
        out_spec=exported.call_spec.out_spec,
        batch_symbol=_batch_symbol(user, axis),
        traced_batch=batch,
    )


def _size_from_values(program: Program) -> str | None:
    """A size that depends on values (how many tokens go to an expert), in words: the batch size does not tell it."""
    for node in program.graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            sizes = [*leaf.shape] if isinstance(leaf, Tensor) else [leaf]
            symbols = {symbol for size in sizes if isinstance(size, SYMBOLIC) for symbol in size.node.expr.free_symbols}
            if symbols - {program.batch_symbol}:
                what = "the size of its result" if isinstance(leaf, Tensor) else "a number taken out of a tensor"
                return f"operation {node.target}: {what} depends on values"
    return None


def _batch_symbol(inputs: Sequence[fx.Node], axis: int) -> Any:
    for node in inputs:
        value = node.meta.get("val")
        size: Any = value.shape[axis] if isinstance(value, Tensor) and value.dim() > axis else None
        if isinstance(size, torch.SymInt) and size.node.expr.free_symbols:
            return size.node.expr
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns, logs and prints about its own inner life; errors still arrive as exceptions."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.__trace")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """An export makes very many objects that live on: looking for garbage among them again and again takes a fifth of
    its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _first_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def does_not_run(model: nn.Module, inputs: Inputs, error: Exception) -> InputError:
    """What the model's own forward raised, as words about the batch."""
    shapes = [tuple(t.shape) for t in inputs.tensors()]
    return InputError(
        f"{type(model).__name__} does not run on inputs of shapes {shapes}: {_first_line(error)}{_user_line(error)}; "
        f"pass a batch that the model accepts{_other_types(model, inputs)}{_passed_whole(model, inputs)}"
    )


def _explained(model: nn.Module, inputs: Inputs, why: str, second: Exception) -> Exception:
    """What stopped the export, and the recording: the operation and the line of the user's code, and what to do."""
    try:
        call_untouched(model, inputs)
    except Exception as own:  # whatever the user's forward raises: the batch is to blame, not the export
        return does_not_run(model, inputs, own)
    return TraceError(
        f"{type(model).__name__} cannot be exported: {why}; nor can one pass of it be recorded: {_reason(second)}. "
        "Name the modules of its residual units instead: ss.trace(model, x, units=['path.of.module', ...])"
    )


def _reason(error: Exception) -> str:
    """What stopped an export or a recording: the operation, and the line of the user's code."""
    operation = re.search(r"aten\.[\w.]+", str(error))
    what = f"operation {operation.group(0)}: " if operation and "operation" not in _first_line(error) else ""
    return f"{what}{_first_line(error)}{_user_line(error)}"


def _passed_whole(model: nn.Module, inputs: Inputs) -> str:
    """A dict or tuple that did not fit the model's arguments was passed as one: a likely cause of the failure."""
    if len(inputs.args) != 1 or not isinstance(inputs.args[0], Mapping | list | tuple):
        return ""
    whole = inputs.args[0]
    what = f"a dict of {', '.join(map(str, whole))}" if isinstance(whole, Mapping) else f"{len(whole)} values"
    return f" (its forward takes {inspect.signature(model.forward)}, so {what} went in as one argument)"


def _other_types(model: nn.Module, inputs: Inputs) -> str:
    """A batch in another precision than the weights: a likely cause of the failure."""
    weights, batch = (
        sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.is_floating_point()})
        for tensors in (model.parameters(), inputs.tensors())
    )
    if not weights or not batch or weights == batch:
        return ""
    return (
        f" (the batch is {', '.join(batch)}, the weights are {', '.join(weights)}: convert one of them with .to(...))"
    )


def _user_line(error: Exception) -> str:
    """The innermost line of the error's own traceback that is not torch's."""
    home = str(Path(torch.__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((home, "<"))]
    frames = [f for f in frames if not f.filename.startswith(str(Path(__file__).parent))]
    if not frames:
        return ""
    frame = frames[-1]
    return f" (at {Path(frame.filename).name}:{frame.lineno}, `{(frame.line or '').strip()}`)"
