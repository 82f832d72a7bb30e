"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipscope.errors import InputError

if TYPE_CHECKING:
    from skipscope.models import Source

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="skipscope:NAME, torchvision:NAME, timm:NAME, hf:NAME_OR_DIR or file.py:factory"
    ),
]
Weights = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights: safetensors, or a torch.save of tensors.")]
Data = Annotated[str | None, typer.Option(metavar="NAME[:PATH]", help="Take the batch from a data set, e.g. digits.")]
InputShape = Annotated[
    str | None, typer.Option(metavar="C,H,W", help="Shape of one random input; for text the count of tokens.")
]
Text = Annotated[str | None, typer.Option(metavar="TEXT", help="Text as input, for an hf: directory with a tokenizer.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps, ...")]
Dtype = Annotated[str | None, typer.Option(help="Convert the model: float32, float64, bfloat16, float16.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For random weights and random inputs.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the result into this folder.")]
Samples = Annotated[int, typer.Option(min=1, help="How many inputs to measure at.")]
Normalise = Annotated[
    str, typer.Option(metavar="HOW", help="Of images: default, none, imagenet, dataset, or means/deviations.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else there.")]

INTERRUPTED = 130  # as shells say it: 128 + SIGINT


def document(content: Any) -> str:
    from skipscope.runs import as_json

    return as_json(content)


def folder_name(text: str) -> str:
    """A model's name as part of a folder's: without separators, and not longer than file systems take."""
    return re.sub(r"[^\w.-]+", "-", text)[-100:].strip("-.") or "model"


@contextlib.contextmanager
def stopped_by_hand(message: str) -> Iterator[None]:
    """Ctrl-C is no error of the program: one line, and the exit code that shells use for it."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(message, err=True)
        raise typer.Exit(INTERRUPTED) from None


def source_of(
    model: str,
    weights: Path | None,
    data: str | None,
    input_shape: str | None,
    text: str | None,
    device: str,
    dtype: str | None,
    seed: int,
    weights_needed: bool,
    samples: int = 2,
    normalise: str = "default",
) -> Source:
    given = [
        name
        for name, value in (("--data", data), ("--input-shape", input_shape), ("--text", text))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} both say what the input is; give one of them")
    shape = None if input_shape is None else _shape(input_shape)
    # Imported after the cheap checks: they bring torch with them.
    from skipscope.data import load
    from skipscope.models import resolve

    batch = None if data is None else load(data, normalise=normalise).test_batch(samples, seed)
    source = resolve(
        model,
        weights=weights,
        input_shape=shape,
        text=text,
        device=device,
        dtype=dtype,
        seed=seed,
        weights_needed=weights_needed,
        samples=samples,
    )
    if batch is not None:
        source = source.with_batch(batch)
    if source.batch is None:
        raise InputError(
            f"{model} gives no example input; let the function return (module, example) or say --input-shape C,H,W"
        )
    return source


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(f"--input-shape {text}: expected positive whole numbers with commas, such as 3,224,224")
    return shape


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """One bar with its time left for each thing that is done; nothing where standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield progress
