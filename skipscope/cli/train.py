"""`skipscope train`."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from skipscope.cli.beforehand import require_data, require_device, require_run_folder
from skipscope.cli.completion import complete_network, one_of
from skipscope.cli.options import Device, Json, Normalise, document, folder_name, say_where
from skipscope.cli.report import report_written
from skipscope.cli.talk import command, stopped_by_hand, talk
from skipscope.data.specs import AUGMENTATIONS, NAMES
from skipscope.errors import InputError
from skipscope.models.names import parse
from skipscope.training.settings import PRECISIONS, SCHEDULES, Settings


@dataclass(frozen=True)
class TrainingOptions:
    """The settings of a training run: `skipscope.cli.talk.command` makes an option of each field."""

    epochs: Annotated[int, typer.Option(min=1, help="How often every image is seen.")] = 15
    batch: Annotated[int, typer.Option(min=2, help="Images a step.")] = 64
    rate: Annotated[float, typer.Option(help="Learning rate at the start.")] = 0.1
    momentum: Annotated[float, typer.Option(help="Of stochastic gradient descent.")] = 0.9
    nesterov: Annotated[bool, typer.Option("--nesterov", help="Nesterov's momentum.")] = False
    weight_decay: Annotated[float, typer.Option(help="L2 penalty on the weights.")] = 5e-4
    schedule: Annotated[str, typer.Option(help="cosine, step or constant.", autocompletion=one_of(*SCHEDULES))] = (
        "cosine"
    )
    milestones: Annotated[str, typer.Option(metavar="E1,E2", help="Epochs at which the rate falls tenfold.")] = ""
    warmup: Annotated[int, typer.Option(help="Epochs over which the rate rises from zero.")] = 0
    augmentation: Annotated[
        str, typer.Option(help="none, crop, crop-flip or paper-a.", autocompletion=one_of(*AUGMENTATIONS))
    ] = "none"
    precision: Annotated[
        str, typer.Option(help="float32, bfloat16 or float16.", autocompletion=one_of(*PRECISIONS))
    ] = "float32"


@command
def train(
    model: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A network of ours, such as resnet20-digits.", autocompletion=complete_network
        ),
    ],
    data: Annotated[
        str, typer.Option(metavar="NAME[:PATH]", help="The data set.", autocompletion=one_of(*NAMES))
    ] = "digits",
    normalise: Normalise = "default",
    *,
    chosen: TrainingOptions,
    device: Device = "cpu",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="For the initial weights and the batches.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder; by default runs/train-NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    as_json: Json = False,
) -> None:
    """Train a network of ours. Its weights, history and accuracy go into a run folder.

    Example: skipscope train resnet20-digits --epochs 15 --out digits-net
    """
    # Everything that can be wrong is found out before there is a folder, and most of it before torch is loaded.
    model = model.removeprefix("skipscope:")  # as other commands write it
    parse(model)
    require_device(device)
    require_data(data, normalise)
    if os.environ.get("RANK", "0") == "0":  # of several processes the first has the folder
        require_run_folder(out, "train", resume)
    settings = Settings(**vars(chosen) | {"milestones": _numbers(chosen.milestones), "seed": seed})
    with talk.loading():
        from skipscope.data import load
        from skipscope.numerics import usable_device
        from skipscope.runs import RunFolder
        from skipscope.training.networks import Network, help_training, train_into
        from skipscope.training.processes import launched

    usable_device(device)
    say_where(device)
    with talk.step(f"reading {data}"):
        found = load(data, normalise=normalise)
    if len(found.train) < settings.batch:
        raise InputError(f"--batch {settings.batch}: {found.name} has {len(found.train)} training images; take fewer")
    _require_room(model, device)
    network = Network(model, found, settings, seed, device)
    parameters = {"model": model, "data": found.describe(), "settings": asdict(settings)}
    folder = out or Path("runs") / f"train-{folder_name(model)}"
    if launched()[0] > 0:
        help_training(network, folder)
        return
    with (
        stopped_by_hand(f"interrupted; go on with --resume --out {folder}"),
        RunFolder(
            folder,
            "train",
            parameters=parameters,
            seed=seed,
            device=device,
            former="resume" if resume else "refuse",
        ) as run,
    ):
        result = train_into(network, run, lambda done, total: talk.progress(f"training {model}", done, total))
    summary = {
        "folder": str(run.path),
        "network": model,
        "data": found.name,
        "status": result.history.status,
        "test_accuracy": result.test_accuracy,
        "seconds": sum(result.history.seconds),
        "weights": str(run.path / result.file),
    }
    with report_written(run.path):
        if as_json:
            talk.result(document({**summary, "history": result.history.to_dict()}))
        else:
            talk.result(
                f"{model} on {found.name}: {result.history.status}, {result.test_accuracy:.2%} of the test images "
                f"right, {summary['seconds']:.0f} s of training\nweights: {summary['weights']}"
            )
        for note in run.record.get("notes", []):
            talk.say(f"note: {note}")


def _require_room(model: str, device: str) -> None:
    import torch

    from skipscope.models import memory, names

    with torch.device("meta"):
        size = memory.size_of(names.build(model))
    memory.require_room(size, torch.device("cpu"), model)
    memory.require_room(3 * size, torch.device(device), model, "its weights, gradients and momentum")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(",") if number)
    except ValueError as error:
        raise InputError(f"--milestones {text}: expected whole numbers with commas, such as 80,120") from error
