"""`skipscope check`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipscope.cli.beforehand import require_folder
from skipscope.cli.options import (
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
    TrustRemoteCode,
    Weights,
    document,
    source_of,
)
from skipscope.cli.talk import CLAIM_FAILED, command, talk

if TYPE_CHECKING:
    from skipscope.models import Source


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
    trust_remote_code: TrustRemoteCode = False,
    seed: Seed = 0,
    no_units: Annotated[bool, typer.Option("--no-units", help="Leave out the spectra of the residual units.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 unless it is expected to train.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Will it train? A check of the initial weights, without training.

    Example: skipscope check skipscope:plainnet44-digits --data digits --strict
    """
    require_folder(out)
    source = source_of(
        model,
        weights,
        data,
        input_shape,
        None,
        device,
        dtype,
        seed,
        weights_needed=True,
        samples=samples,
        normalise=normalise,
        trust_remote_code=trust_remote_code,
    )
    with talk.step("checking"):
        from skipscope.check import check as forecast_of

        forecast = forecast_of(source.model, source.batch, seed=seed, unit_spectra=not no_units)
    forecast = replace(forecast, notes=(*forecast.notes, *_samples(source, samples)))
    written = document({"source": {"model": model, **source.to_dict(), "seed": seed}, **forecast.to_dict()})
    if out is not None:
        from skipscope.runs import write_whole

        write_whole(out / "check.json", lambda path: path.write_text(f"{written}\n", encoding="utf-8"))
    talk.result(written if as_json else f"{source}{_about(source.random_weights, weights)}\n\n{forecast}")
    if out is not None:
        talk.say(f"wrote {out / 'check.json'}")
    if strict and not forecast.trains:
        why = [finding.name for finding in forecast.findings] or list(forecast.unanswered)
        talk.say(f"{forecast.verdict.lower()}: {', '.join(why)}")
        raise typer.Exit(CLAIM_FAILED)


def _samples(source: Source, asked: int) -> list[str]:
    """What a user's own example had to be made into."""
    if source.lacking:
        return [f"Fewer samples than the {asked} asked for: {source.lacking}."]
    return [f"Measured at {source.inputs}."] if source.inputs else []


def _about(random_weights: bool, weights: Path | None) -> str:
    """What the source itself does not say: a factory's weights may be new or not."""
    if random_weights:
        return ": initial weights, before training"
    return "" if weights is None else ": the weights given, not a fresh start"
