"""From a module and a batch to a functional `Program`, through `torch.export`.

The export is non-strict, with one named dimension for the batch; `run_decompositions({})` removes in-place
operations and keeps attention and norms whole. See `tidy` for what is then taken out of the graph.
"""

from __future__ import annotations

import copy
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

from skipscope.errors import InputError, TraceError
from skipscope.trace.inputs import Inputs
from skipscope.trace.program import Program
from skipscope.trace.tidy import tidy
from skipscope.trace.undisturbed import undisturbed

HALF = (torch.float16, torch.bfloat16)
LARGEST_BATCH = 65535  # cuDNN's limit, which it puts into the graph as a guard


def in_full_precision(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs, list[str]]:
    """A half-precision model has casts in its graph: it is measured on a float32 copy, and the note says so."""
    halves = {str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.dtype in HALF}
    if not halves:
        return model, inputs, []
    note = (
        f"{' and '.join(sorted(halves))} weights: measured in float32 on a copy of the model; "
        "later changes of the original's weights are not seen"
    )
    return copy.deepcopy(model).float(), inputs.floating(torch.float32), [note]


def export(model: nn.Module, inputs: Inputs) -> tuple[Program, list[str]]:
    """Export `model` at `inputs`; returns the program and notes for the reader of its results."""
    inputs.check_device(model)
    with undisturbed(model), _quiet():
        exported, note = _exported(model, inputs)
        exported = exported.run_decompositions({})
    program = _program(model, exported, inputs.batch if note else inputs.at_least_two().batch, inputs.axis)
    tidy(program)
    return program, [note] if note else []


def _exported(model: nn.Module, inputs: Inputs) -> tuple[ExportedProgram, str | None]:
    """Try with every input that has the batch's size as batched, then only the first, then a fixed batch."""
    free = inputs.at_least_two()
    carriers = [t for t in free.tensors() if free.carries(t)]
    attempts: list[Sequence[Tensor]] = [carriers, carriers[:1], []] if len(carriers) > 1 else [carriers, []]
    failure: Exception | None = None
    for chosen in attempts:
        example = free if chosen else inputs
        batch = Dim("batch", min=1, max=LARGEST_BATCH)
        shapes = ShapesCollection()
        for tensor in chosen:
            shapes[tensor] = {inputs.axis: batch}
        try:
            exported = torch.export.export(
                model,
                example.args,
                example.kwargs,
                dynamic_shapes=shapes if chosen else None,
                strict=False,
            )
        except Exception as error:
            # The export raises many types; every one of them means that this way of exporting did not work.
            failure = failure or error
            continue
        if not chosen:
            return exported, f"the model's graph holds only for batches of {inputs.batch}: {_first_line(failure)}"
        return exported, None
    assert failure is not None
    raise _explained(model, inputs, failure) from failure


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


def _batch_symbol(inputs: Sequence[fx.Node], axis: int) -> Any:
    for node in inputs:
        value = node.meta.get("val")
        size: Any = value.shape[axis] if isinstance(value, Tensor) and value.dim() > axis else None
        if isinstance(size, torch.SymInt):
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


def _first_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def does_not_run(model: nn.Module, inputs: Inputs, error: Exception) -> InputError:
    """What the model's own forward raised, as words about the batch."""
    shapes = [tuple(t.shape) for t in inputs.tensors()]
    return InputError(
        f"{type(model).__name__} does not run on inputs of shapes {shapes}: {_first_line(error)}{_user_line(error)}; "
        f"pass a batch that the model accepts{_passed_whole(model, inputs)}"
    )


def _explained(model: nn.Module, inputs: Inputs, error: Exception) -> Exception:
    """What stopped the export: the operation and the line of the user's code, and what to do instead."""
    try:
        call_untouched(model, inputs)
    except Exception as own:  # whatever the user's forward raises: the batch is to blame, not the export
        return does_not_run(model, inputs, own)
    where = _user_line(error)
    operation = re.search(r"aten\.[\w.]+", str(error))
    what = f"operation {operation.group(0)}: " if operation else ""
    return TraceError(
        f"{type(model).__name__} cannot be exported: {what}{_first_line(error)}{where}. "
        "Name the modules of its residual units instead: ss.trace(model, x, units=['path.of.module', ...]), "
        "or --units path.of.module,... on the command line"
    )


def _passed_whole(model: nn.Module, inputs: Inputs) -> str:
    """A dict or tuple that did not fit the model's arguments was passed as one: a likely cause of the failure."""
    if len(inputs.args) != 1 or not isinstance(inputs.args[0], Mapping | list | tuple):
        return ""
    whole = inputs.args[0]
    what = f"a dict of {', '.join(map(str, whole))}" if isinstance(whole, Mapping) else f"{len(whole)} values"
    return f" (its forward takes {inspect.signature(model.forward)}, so {what} went in as one argument)"


def call_untouched(model: nn.Module, inputs: Inputs) -> Any:
    """The model's own output in evaluation mode, on cloned buffers, so that nothing it updates is kept."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with undisturbed(model):
        return torch.func.functional_call(model, buffers, inputs.args, inputs.kwargs)


def _user_line(error: Exception) -> str:
    """The innermost line of the error's own traceback that is not torch's."""
    home = str(Path(torch.__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((home, "<"))]
    frames = [f for f in frames if f.filename != __file__]
    if not frames:
        return ""
    frame = frames[-1]
    return f" (at {Path(frame.filename).name}:{frame.lineno}, `{(frame.line or '').strip()}`)"
