"""`skipscope units`."""

from __future__ import annotations

import contextlib
import sys

import typer

from skipscope.cli.options import (
    Data,
    Device,
    Dtype,
    InputShape,
    Json,
    Model,
    Out,
    Seed,
    Text,
    Weights,
    document,
    source_of,
)


def units(
    model: Model,
    weights: Weights = None,
    data: Data = None,
    input_shape: InputShape = None,
    text: Text = None,
    device: Device = "cpu",
    dtype: Dtype = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """List the residual units of a model."""
    # A library or a user's factory may print; standard output holds the result alone.
    with contextlib.redirect_stdout(sys.stderr):
        from skipscope.trace import trace

        source = source_of(model, weights, data, input_shape, text, device, dtype, seed, weights_needed=False)
        trunk = trace(source.model, source.batch)
    content = {"source": {"model": model, **source.to_dict(), "seed": seed}, **trunk.to_dict()}
    written = document(content)
    typer.echo(written if as_json else f"{source}\n\n{trunk}")
    if out is not None:
        from skipscope.runs import write_whole

        write_whole(out / "units.json", lambda path: path.write_text(f"{written}\n", encoding="utf-8"))
        typer.echo(f"wrote {out / 'units.json'}", err=True)
