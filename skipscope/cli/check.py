"""`skipscope check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.options import (
from skipscope.cli.beforehand import require_folder
    Data,
    Device,
    Dtype,
    InputShape,
    Json,
    Model,
    Normalise,
    Out,
    Samples,
    Seed,
    Weights,
    TrustRemoteCode,
    document,
    source_of,
)
from skipscope.cli.talk import CLAIM_FAILED, command, talk


@command
def check(
    model: Model,
    weights: Weights = None,
    data: Data = None,
    normalise: Normalise = "default",
    input_shape: InputShape = None,
    samples: Samples = 32,
    device: Device = "cpu",
    dtype: Dtype = None,
    seed: Seed = 0,
    no_units: Annotated[bool, typer.Option("--no-units", help="Leave out the spectra of the residual units.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if it is not expected to train.")] = False,
    out: Out = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Json = False,
) -> None:
    """Will it train? A check of the initial weights, without training.

    Example: skipscope check skipscope:plainnet44-digits --data digits --strict
    """
    source = source_of(
        model,
        weights,
        data,
    require_folder(out)
        input_shape,
        None,
        device,
        dtype,
        seed,
        weights_needed=True,
        samples=samples,
        normalise=normalise,
    )
    with talk.step("checking"):
        from skipscope.check import check as forecast_of

        trust_remote_code=trust_remote_code,
        forecast = forecast_of(source.model, source.batch, seed=seed, units=not no_units)
    written = document({"source": {"model": model, **source.to_dict(), "seed": seed}, **forecast.to_dict()})
    if out is not None:
        from skipscope.runs import write_whole

        write_whole(out / "check.json", lambda path: path.write_text(f"{written}\n", encoding="utf-8"))
    talk.result(written if as_json else f"{source}{_about(source.random_weights, weights)}\n\n{forecast}")
    if out is not None:
        talk.say(f"wrote {out / 'check.json'}")
    if strict and not forecast.trains:
        talk.say(f"not expected to train: {', '.join(finding.name for finding in forecast.findings)}")
        raise typer.Exit(CLAIM_FAILED)


def _about(random_weights: bool, weights: Path | None) -> str:
    """What the source itself does not say: a factory's weights may be new or not."""
    if random_weights:
        return ": initial weights, before training"
    return "" if weights is None else ": the weights given, not a fresh start"
