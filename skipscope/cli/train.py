"""`skipscope train`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipscope.cli.beforehand import require_data, require_device, require_run_folder
from skipscope.cli.completion import complete_network, one_of
from skipscope.cli.executing import ExecutionOptions
from skipscope.cli.options import Device, Json, Normalise, document, folder_name, say_where
from skipscope.cli.report import report_written
from skipscope.cli.talk import command, stopped, talk
from skipscope.data.specs import AUGMENTATIONS, NAMES
from skipscope.errors import InputError
from skipscope.inspection.duration import seconds_in
from skipscope.models.names import parse
from skipscope.training.settings import PRECISIONS, SCHEDULES, Settings

if TYPE_CHECKING:
    from skipscope.training.networks import Network, Trained

LARGEST_SEED = 2**31
MOST_SEEDS = 1000  # in a run


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
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="For the initial weights and the batches.")] = 0,
    seeds: Annotated[
        str, typer.Option(metavar="A-B", help="Train one network for each of these seeds, together if possible.")
    ] = "",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder; by default runs/train-NAME.")] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the weights alone there too, as NAME-seedS.safetensors.")
    ] = None,
    save_every: Annotated[
        str,
        typer.Option(metavar="TIME", help="Write a checkpoint after an epoch, at most this often: 20s, 5m; 0: always."),
    ] = "20s",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    executing: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Train a network of ours. Its weights, history and accuracy go into a run folder.

    Example: skipscope train resnet20-digits --epochs 15 --out digits-net
    """
    # Everything that can be wrong is found out before there is a folder, and most of it before torch is loaded.
    model = model.removeprefix("skipscope:")  # as other commands write it
    parse(model)
    seconds = seconds_in(save_every, "--save-every", or_none=True)
    require_device(device)
    require_data(data, normalise)
    if os.environ.get("RANK", "0") == "0":  # of several processes the first has the folder
        require_run_folder(out, "train", resume)
    _require_room_for_export(export, model, seeds_of(seeds) or [seed], resume)
    several = seeds_of(seeds)
    execution = executing.execution(device)
    if execution is not None and not several:
        raise InputError(f"--executor {execution.executor} is for several networks; give --seeds A-B too")
    if several and seed:
        raise InputError(f"--seed {seed} --seeds {seeds}: expected one of the two")
    settings = Settings(**vars(chosen) | {"milestones": _numbers(chosen.milestones), "seed": seed})
    with talk.loading():
        from skipscope.data import load
        from skipscope.numerics import usable_device
        from skipscope.runs import RunFolder
        from skipscope.training.network_files import export as write_weights
        from skipscope.training.network_fleets import train_fleet_into
        from skipscope.training.networks import Network, help_training, train_into
        from skipscope.training.processes import launched

    usable_device(device)
    say_where(device)
    with talk.step(f"reading {data}"):
        found = load(data, normalise=normalise)
    if len(found.train) < settings.batch:
        raise InputError(f"--batch {settings.batch}: {found.name} has {len(found.train)} training images; take fewer")
    _require_room(model, device)
    networks = [Network(model, found, settings, one, device) for one in several or [seed]]
    parameters = {"model": model, "data": found.describe(), "settings": asdict(settings)}
    folder = out or Path("runs") / f"train-{folder_name(model)}"
    rank, processes = launched()
    if several and processes > 1:
        raise InputError(f"--seeds {seeds}: expected one process, got {processes}; start one for each seed with --seed")
    if rank > 0:
        help_training(networks[0], folder)
        return
    with (
        stopped(f"go on with --resume --out {shlex.quote(str(folder))}"),
        RunFolder(
            folder,
            "train",
            parameters=parameters | ({"seeds": several} if several else {}),
            seed=several[0] if several else seed,
            device=device,
            former="resume" if resume else "refuse",
        ) as run,
    ):
        if several:
            results = train_fleet_into(networks, run, lambda what: partial(talk.progress, what), seconds, execution)
        else:
            results = [train_into(networks[0], run, partial(talk.progress, f"training {model}"), seconds)]
    summaries = [_summary(network, result, run.path) for network, result in zip(networks, results, strict=True)]
    if export is not None:
        for network, result, summary in zip(networks, results, summaries, strict=True):
            summary["exported"] = str(write_weights(network, result, export))
    common = {"folder": str(run.path), "network": model, "data": found.name}
    with report_written(run.path):
        if as_json:
            talk.result(document(common | ({"networks": summaries} if several else summaries[0])))
        else:
            for network, summary in zip(networks, summaries, strict=True):
                title = network.title if several else model
                talk.result(
                    f"{title} on {found.name}: {_ending(summary, settings.rate)}, {summary['test_accuracy']:.2%} of "
                    f"the test images right, {summary['seconds']:.0f} s of training\n"
                    f"weights: {summary.get('exported', summary['weights'])}"
                )
        for note in run.record.get("notes", []):
            talk.say(f"note: {note}")


def _require_room_for_export(export: Path | None, model: str, seeds: list[int], resume: bool) -> None:
    if export is None:
        return
    if export.exists() and not export.is_dir():
        raise InputError(f"--export {export}: expected a folder, or a name for a new one, got a file")
    there = [export / f"{model}-seed{seed}.safetensors" for seed in seeds]
    if not resume and (former := [file for file in there if file.exists()]):
        raise InputError(
            f"--export {export}: {former[0].name} is there already; choose another folder, or move it away"
        )


def _summary(network: Network, result: Trained, folder: Path) -> dict[str, Any]:
    return {
        "seed": network.seed,
        "status": result.history.status,
        "test_accuracy": result.test_accuracy,
        "seconds": sum(result.history.seconds),
        "weights": str(folder / result.file),
        "history": result.history.to_dict(),
    }


def _ending(summary: Mapping[str, Any], rate: float) -> str:
    """finished, or at which step it diverged and what to do."""
    step = summary["history"]["diverged_at"]
    if step is None:
        return str(summary["status"])
    return f"diverged at step {step}, counted from 0 (try a smaller --rate than {rate:g})"


def seeds_of(text: str) -> list[int]:
    """`1000-1007`, or single ones and ranges with commas; none where the text is empty."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ends = (first, last or first)
        if not all(end.isdecimal() and int(end) <= LARGEST_SEED for end in ends) or int(ends[1]) < int(ends[0]):
            raise InputError(f"--seeds {text}: expected seeds such as 1000-1007 or 1000,1003, got '{part}'")
        if int(ends[1]) - int(ends[0]) >= MOST_SEEDS:
            raise InputError(f"--seeds {text}: expected at most {MOST_SEEDS} networks in a run")
        found += range(int(ends[0]), int(ends[1]) + 1)
    if len(set(found)) < len(found) or len(found) > MOST_SEEDS:
        raise InputError(f"--seeds {text}: expected at most {MOST_SEEDS} seeds, none of them twice, got {len(found)}")
    return found


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
