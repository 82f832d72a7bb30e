"""`skipscope inspect`."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipscope.cli.beforehand import require_former, require_run_folder
from skipscope.cli.executing import ExecutionOptions
from skipscope.cli.inspect_many import inspect_many
from skipscope.cli.option_names import in_commands
from skipscope.cli.options import (
    Checkpoints,
    Full,
    Json,
    Memory,
    ModelOptions,
    Named,
    Normalise,
    Text,
    TextFile,
    document,
    folder_name,
    in_commas,
    names_in,
)
from skipscope.cli.report import report_written
from skipscope.cli.talk import command, stopped, talk
from skipscope.errors import InputError
from skipscope.inspection.duration import seconds_in
from skipscope.runs.executors.execution import Execution
from skipscope.wording import counted

if TYPE_CHECKING:
    from skipscope.inspection.result import Result
    from skipscope.models import Source
    from skipscope.trace import Trunk


@command
def inspect(
    chosen: ModelOptions,
    normalise: Normalise = "default",
    text: Text = None,
    text_file: TextFile = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="How many inputs to measure at; 2, or the example of a factory as it is."),
    ] = None,
    memory: Memory = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="About how long to measure: 90s, 5m, 1h.")] = "5m",
    named: Named = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Batch norms that have never seen data get the statistics of the batch."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; by default a new one under runs/.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, of the same model, inputs and options.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a former run of inspect in --out.")] = False,
    checkpoints: Checkpoints = None,
    full: Full = False,
    *,
    executing: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """All measurements on a model, with a report. They go as far as the budget does.

    Example: skipscope inspect torchvision:resnet18 --input-shape 3,64,64 --budget 2m
    """
    seconds, modules = seconds_in(budget), names_in(named)
    execution = executing.execution(chosen.device)
    require_former(out, resume, force)
    if checkpoints:
        if force or memory is not None or full:
            option = "--force" if force else "--full" if full else "--memory"
            raise InputError(f"{option} is for one model at a time; leave it out with --checkpoints")
        inspect_many(
            chosen,
            in_commas(checkpoints),
            execution or Execution(),
            seconds=seconds,
            normalise=normalise,
            text=text,
            text_file=text_file,
            samples=samples,
            modules=modules,
            calibrate=calibrate,
            out=out,
            resume=resume,
            as_json=as_json,
        )
        return
    if execution is not None:
        raise InputError(f"--executor {execution.executor} is for many checkpoints; give --checkpoints FILE,... too")
    require_run_folder(out, "inspect", resume, force)
    source = chosen.source(text=text, text_file=text_file, samples=samples, normalise=normalise, memory=memory)
    with talk.loading():
        from skipscope.findings import in_lines
        from skipscope.inspection.inspecting import require_units, steps
        from skipscope.inspection.language import TokenText
        from skipscope.inspection.result import WHAT, leave_out, load
        from skipscope.models.recipe import BATCH_SIZE
        from skipscope.runs import RunFolder
        from skipscope.runs.files import digest_of_tensors
        from skipscope.trace import trace

    if source.lacking:
        raise InputError(f"--samples {samples}: {source.lacking}; let its example have as many, or leave --samples out")
    folder = out or _new_folder(chosen.model)
    values = digest_of_tensors(source.model.state_dict())
    with talk.step("tracing"):
        trunk = trace(source.model, source.batch, units=modules, calibrate=calibrate)
    require_units(trunk)
    talk.detail(str(source))
    parameters = {
        "source": {
            "model": chosen.model,
            **source.to_dict(),
            **_inputs(chosen, source, normalise, _text_words(text, text_file, source), samples or BATCH_SIZE),
        },
        "budget": seconds,
        **({} if memory is None else {"memory": memory}),
        "trunk": trunk.to_dict(),
    }
    talk.detail(f"into {folder}")
    prompts = source.prompts
    words = None if prompts is None else TokenText(prompts.tokens, padded=prompts.mask is not None)
    finished = resume and _is_finished(folder)
    with (
        stopped(f"go on with --resume --out {shlex.quote(str(folder))}"),
        talk.step(f"measuring, about {budget}"),
        RunFolder(
            folder,
            WHAT,
            parameters=parameters,
            seed=chosen.seed,
            device=chosen.device,
            former="resume" if resume else "replace" if force else "refuse",
        ) as run,
    ):
        run.used("the model's values", {"sha256": values})
        run.used("the input's values", {"sha256": digest_of_tensors(source.batch)})
        for note in source.notes:
            run.note(note)
        there = run.datasets()
        if finished:
            talk.say(f"{folder} holds a run that is finished; nothing is measured again (--force measures anew)")
            left_out = run.record.get("left_out", {})
        else:
            if there:
                talk.say(f"going on in {folder}, which has {', '.join(there)}")
            left_out = dict(
                steps(
                    trunk,
                    source.batch,
                    seconds,
                    seed=chosen.seed,
                    announce=talk.progress,
                    keep=run.write_dataset,
                    there=there,
                    text=words,
                )
            )
        leave_out(run, left_out)
    with report_written(run.path):
        result = load(run.path)
        if as_json:
            # Without the singular values themselves, which are in data/spectra.nc.
            measured = {name: data.drop_dims("index", errors="ignore") for name, data in result.datasets.items()}
            numbers = {name: data.to_dict() for name, data in measured.items()}
            talk.result(
                document(
                    {
                        "notes": result.notes,
                        "findings": [finding.to_dict() for finding in result.findings],
                        "folder": str(run.path),
                        "run": run.record,
                        "measured": numbers,
                    }
                )
            )
        else:
            first = f"{'; '.join([str(source), *result.notes])}\n\n{in_lines(result.findings)}"
            tables = f"{trunk}\n\n{result.numbers}" if full else _where(trunk, result)
            talk.result(in_commands(f"{first}\n\n{tables}"))


def _where(trunk: Trunk, result: Result) -> str:
    left_out = f"; {counted(len(result.left_out), 'measurement')} left out (--full says why)" if result.left_out else ""
    units, stages = counted(len(trunk.units), "residual unit"), counted(len(trunk.stages), "stage")
    return f"{units} in {stages}{left_out}. Tables: --full."


def _text_words(text: str | None, file: Path | None, source: Source) -> str:
    """Empty where the input is not text."""
    if text is not None:
        return f"the text {text!r}"
    if file is None or source.prompts is None:
        return ""
    ids = source.prompts.ids
    words = f"{counted(len(ids), 'prompt')} of {file} with {counted(len(ids[0]), 'token')}"
    return "; ".join([words, *source.prompts.notes])


def _inputs(chosen: ModelOptions, source: Source, normalise: str, text: str, samples: int) -> dict[str, object]:
    """What a reader must know of the inputs and of the files that the model comes from."""
    from skipscope.runs.files import digest

    if chosen.data is not None:
        words = f"{samples} test images of {chosen.data}"
    elif text:
        words = text
    elif chosen.input_shape is not None:
        words = f"{samples} random inputs of shape {chosen.input_shape}"
    else:
        words = source.inputs or f"{samples} random inputs of the model's usual shape"
    return {
        "input": words,
        "normalise": normalise if chosen.data is not None else None,
        "dtype": chosen.dtype,
        "weights_sha256": digest(chosen.weights) if chosen.weights is not None and chosen.weights.is_file() else None,
        **({} if source.origin is None else source.origin.to_dict()),
    }


def _is_finished(folder: Path) -> bool:
    from skipscope.runs.record import NAME, read_record

    return (folder / NAME).is_file() and read_record(folder)[0]["status"] == "finished"


def _new_folder(model: str) -> Path:
    """runs/inspect-NAME, with a number behind it where that is taken."""
    name = f"inspect-{folder_name(model)}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(folder for folder in (Path("runs") / each for each in names) if not folder.exists())
