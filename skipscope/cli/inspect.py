"""`skipscope inspect`."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.options import (
    Data,
    Device,
    Dtype,
    InputShape,
    Json,
    Model,
    Normalise,
    Samples,
    Seed,
    Text,
    Weights,
    document,
    progress_bars,
    source_of,
    stopped_by_hand,
)


def inspect(
    model: Model,
    weights: Weights = None,
    data: Data = None,
    normalise: Normalise = "default",
    input_shape: InputShape = None,
    text: Text = None,
    samples: Samples = 2,
    budget: Annotated[str, typer.Option(metavar="TIME", help="About how long to measure: 90s, 5m, 1h.")] = "5m",
    device: Device = "cpu",
    dtype: Dtype = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; by default a new one under runs/.")
    ] = None,
    as_json: Json = False,
) -> None:
    """All measurements on a model, as far as the budget goes, with a report.

    Example: skipscope inspect torchvision:resnet18 --input-shape 3,64,64 --budget 2m
    """
    with contextlib.redirect_stdout(sys.stderr):
        from skipscope.inspection.budget import seconds_in
        from skipscope.inspection.inspecting import steps
        from skipscope.inspection.result import WHAT, leave_out, load
        from skipscope.report import write_report
        from skipscope.runs import RunFolder
        from skipscope.trace import trace

        seconds = seconds_in(budget)
        source = source_of(
            model,
            weights,
            data,
            input_shape,
            text,
            device,
            dtype,
            seed,
            weights_needed=True,
            samples=samples,
            normalise=normalise,
        )
        typer.echo(str(source), err=True)
        folder = out or _new_folder(model)
        trunk = trace(source.model, source.batch)
        parameters = {
            "source": {"model": model, **source.to_dict(), "input": _input(data, text, samples)},
            "budget": seconds,
            "trunk": trunk.to_dict(),
        }
        with (
            stopped_by_hand(f"interrupted; what was finished is in {folder}"),
            progress_bars() as progress,
            RunFolder(folder, WHAT, parameters=parameters, seed=seed, device=device) as run,
        ):
            leave_out(
                run,
                dict(steps(trunk, source.batch, seconds, seed=seed, progress=progress, keep=run.write_dataset)),
            )
        result = load(run.path)
        report = write_report(run.path)
    if as_json:
        # Without the singular values themselves, which are in data/spectra.nc.
        numbers = {name: data.drop_dims("index", errors="ignore").to_dict() for name, data in result.datasets.items()}
        typer.echo(document({"folder": str(run.path), "run": run.record, "measured": numbers}))
    else:
        typer.echo(f"{source}\n\n{trunk}\n\n{result}")
    typer.echo(f"wrote {report}", err=True)


def _input(data: str | None, text: str | None, samples: int) -> str:
    if data is not None:
        return f"{samples} test images of {data}"
    return f"the text {text!r}" if text is not None else "random inputs, or the example of the model's own factory"


def _new_folder(model: str) -> Path:
    """runs/inspect-NAME, with a number behind it where that is taken."""
    name = re.sub(r"[^\w.-]+", "-", model).strip("-")
    candidate, number = Path("runs") / f"inspect-{name}", 1
    while candidate.exists():
        number += 1
        candidate = candidate.with_name(f"inspect-{name}-{number}")
    return candidate
