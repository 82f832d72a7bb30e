"""`skipscope sweep`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.beforehand import require_data, require_device, require_run_folder
from skipscope.cli.completion import complete_model, one_of
from skipscope.cli.executing import ExecutionOptions
from skipscope.cli.option_names import in_commands
from skipscope.cli.options import (
    Checkpoints,
    Device,
    Json,
    Named,
    Normalise,
    Text,
    TextFile,
    document,
    in_commas,
    names_in,
    prompts_of,
    shape_of,
)
from skipscope.cli.report import report_written
from skipscope.cli.talk import command, stopped, talk
from skipscope.data.specs import NAMES
from skipscope.errors import InputError
from skipscope.models.request import DTYPES, require_dtype, require_text
from skipscope.runs.executors.execution import Execution
from skipscope.sweeps.measuring import VARIABLES, How, Inputs, require_measures
from skipscope.sweeps.subjects import subjects_of

DEFAULT = "profile"


@command
def sweep(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="One or more, as `inspect` takes them.", autocompletion=complete_model),
    ],
    measure: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help=f"What to measure: {', '.join(VARIABLES)}.", autocompletion=one_of(*VARIABLES)
        ),
    ] = DEFAULT,
    checkpoints: Checkpoints = None,
    revisions: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Of hf: models: folders of a directory, or revisions in the local cache."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:PATH]", help="Take the batch from a data set, e.g. digits.", autocompletion=one_of(*NAMES)
        ),
    ] = None,
    normalise: Normalise = "default",
    input_shape: Annotated[
        str | None, typer.Option(metavar="C,H,W", help="Shape of one random input; for hf: text the count of tokens.")
    ] = None,
    text: Text = None,
    text_file: TextFile = None,
    samples: Annotated[int | None, typer.Option(min=1, help="How many inputs to measure at.")] = None,
    named: Named = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Batch norms that have never seen data get the statistics of the batch."),
    ] = False,
    device: Device = "cpu",
    dtype: Annotated[
        str | None,
        typer.Option(help="Convert the models: float32, float64, bfloat16, float16.", autocompletion=one_of(*DTYPES)),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python code that an hf: directory comes with.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For random weights and random inputs.")] = 0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The run folder.")] = Path("runs/sweep"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in this folder.")] = False,
    *,
    executing: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """The same measurements on many models, checkpoints or training steps, side by side, with a report.

    Example: skipscope sweep torchvision:resnet18 torchvision:resnet34 --input-shape 3,64,64 --out depths
    """
    measures, units = require_measures(measure), names_in(named)
    execution = executing.execution(device) or Execution()
    require_device(device)
    require_data(data, normalise)
    if dtype is not None:
        require_dtype(dtype)
    _require_one_input({"--data": data, "--input-shape": input_shape, "--text": text, "--text-file": text_file})
    for model in models if text is not None or text_file is not None else ():
        require_text(model)
    subjects = subjects_of(models, in_commas(checkpoints or []), in_commas([revisions] if revisions else []))
    require_run_folder(out, "sweep", resume)
    prompts = None if text_file is None else prompts_of(text_file, samples)
    shape = None if input_shape is None else shape_of(input_shape)
    with talk.loading():
        from skipscope.data import load
        from skipscope.models.recipe import BATCH_SIZE
        from skipscope.sweeps.sweeping import swept

    batch = None
    if data is not None:
        with talk.step(f"reading {data}"):
            batch = load(data, normalise=normalise).test_batch(samples or BATCH_SIZE, seed)
    inputs = Inputs(batch, shape, text if prompts is None else prompts, samples)
    how = How(measures, None if units is None else tuple(units), seed, device, dtype, calibrate, trust_remote_code)
    with stopped(f"go on with --resume --out {shlex.quote(str(out))}"):
        found = swept(
            subjects,
            inputs,
            how,
            execution,
            out,
            "resume" if resume else "refuse",
            lambda done, total: talk.progress(f"measuring {subjects.dimension}s", done, total),
        )
    from skipscope.findings import findings_of, in_lines

    with report_written(out):
        if as_json:
            talk.result(
                document(
                    {
                        "folder": str(out),
                        "findings": [finding.to_dict() for finding in findings_of({"sweep": found})],
                        "sweep": found.to_dict(),
                    }
                )
            )
        else:
            from skipscope.report.views.sweeps import sweep_view

            (table,) = sweep_view({"sweep": found}).tables
            notes = "".join(f"note: {note}\n" for note in found.attrs.get("notes", "").split("; ") if note)
            talk.result(in_commands(f"{notes}{in_lines(findings_of({'sweep': found}))}\n\n{table}"))


def _require_one_input(given: dict[str, object]) -> None:
    if given["--text-file"] is not None:
        given.pop("--input-shape")  # the length of the prompts
    both = [name for name, value in given.items() if value is not None]
    if len(both) > 1:
        raise InputError(f"{' and '.join(both)} both say what the input is; give one of them")
