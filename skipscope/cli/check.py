"""`skipscope check`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipscope.cli.beforehand import require_folder
from skipscope.cli.options import Full, Json, ModelOptions, Normalise, Out
from skipscope.cli.talk import CLAIM_FAILED, command, talk
from skipscope.errors import InputError
from skipscope.optimisers import kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from skipscope.models import Source


@command
def check(
    chosen: ModelOptions,
    normalise: Normalise = "default",
    samples: Annotated[int, typer.Option(min=2, help="How many inputs to measure at.")] = 32,
    optimiser: Annotated[
        str,
        typer.Option(
            help="What it is to be trained with: sgd, or adam (adamw, rmsprop, ...), which rescales every step."
        ),
    ] = "sgd",
    train: Annotated[
        bool,
        typer.Option("--train", help="Train copies for a few hundred steps on images of --data; their result decides."),
    ] = False,
    no_units: Annotated[bool, typer.Option("--no-units", help="Leave out the spectra of the residual units.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 unless it is expected to train.")] = False,
    out: Out = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Will it train? A check of the initial weights; with --train, of a short training of copies too.

    Example: skipscope check skipscope:plainnet44-digits --data digits --strict
    """
    require_folder(out)
    optimiser = kind_of(optimiser)
    if train and chosen.data is None:
        raise InputError("--train takes images with labels: name a data set with --data, such as --data digits")
    source = chosen.source(samples=samples, normalise=normalise)
    with talk.step("checking"):
        from skipscope.check import check as forecast_of

        forecast = forecast_of(
            source.model,
            source.batch,
            optimiser=optimiser,
            seed=chosen.seed,
            unit_spectra=not no_units,
            train_on=_training_images(source, chosen.data, normalise, chosen.seed) if train and chosen.data else None,
        )
    forecast = replace(forecast, notes=(*forecast.notes, *_samples(source, samples)))
    text = str(forecast) if full else f"{forecast.short}\n\nTables: --full."
    shown = f"{source}{_about(source.random_weights, chosen.weights)}\n\n{text}"
    chosen.give(source, forecast.to_dict(), shown, None if out is None else out / "check.json", as_json)
    if strict and not forecast.trains:
        why = [finding.name for finding in forecast.problems] or list(forecast.unanswered)
        talk.say(f"{forecast.verdict.lower()}: {', '.join(why)}")
        raise typer.Exit(CLAIM_FAILED)


def _training_images(source: Source, data: str, normalise: str, seed: int) -> tuple[Any, Tensor]:
    """As many as a short training takes, and their labels."""
    from skipscope.check.short_training import few_samples
    from skipscope.data import load

    split = load(data, normalise=normalise).train
    chosen = few_samples(split.labels, seed)
    return source.moved(split.images(chosen)), split.labels[chosen]


def _samples(source: Source, asked: int) -> list[str]:
    """What a user's own example had to be made into."""
    if source.lacking:
        return [f"Fewer samples than the {asked} asked for: {source.lacking}. Let its example have as many."]
    return [f"Measured at {source.inputs}."] if source.inputs else []


def _about(random_weights: bool, weights: Path | None) -> str:
    """What the source itself does not say: a factory's weights may be new or not."""
    if random_weights:
        return ": initial weights, before training"
    return "" if weights is None else ": the weights given, not a fresh start"
