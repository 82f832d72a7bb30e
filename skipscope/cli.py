"""The command line. Heavy libraries are imported inside the commands, so that --help answers at once.

Results go to standard output and everything else to standard error. A `SkipscopeError` becomes one line and exit
code 2; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipscope import __version__
from skipscope.errors import InputError, SkipscopeError

if TYPE_CHECKING:
    from skipscope.models import Source

app = typer.Typer(
    help="Shows what the skip connections do inside a PyTorch network.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="torchvision:NAME, timm:NAME, hf:NAME_OR_DIR or file.py:factory"),
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
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else there.")]

INTERRUPTED = 130  # as shells say it: 128 + SIGINT


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skipscope {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    pass


@app.command()
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

        source = _source(model, weights, data, input_shape, text, device, dtype, seed, weights_needed=False)
        trunk = trace(source.model, source.batch)
    result = {
        "source": {
            "model": model,
            "description": source.description,
            "weights": source.weights,
            "random_weights": source.random_weights,
            "seed": seed,
        },
        **trunk.to_dict(),
    }
    document = json.dumps(result, indent=2)
    typer.echo(document if as_json else f"{source}\n\n{trunk}")
    if out is not None:
        from skipscope.runs.folder import write_whole

        write_whole(out / "units.json", lambda path: path.write_text(f"{document}\n", encoding="utf-8"))
        typer.echo(f"wrote {out / 'units.json'}", err=True)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the run and its report.")] = Path(
        "skipscope-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For the initial weights and the batches.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a residual network and its plain twin, measure both, write a report: about a minute."""
    with contextlib.redirect_stdout(sys.stderr):
        from skipscope.demo import demo as run_demo
        from skipscope.runs import as_json as document_of

        try:
            with _progress_bars() as progress:
                result = run_demo(out, seed=seed, progress=progress)
        except KeyboardInterrupt:
            typer.echo(f"interrupted; what was finished is in {out}", err=True)
            raise typer.Exit(INTERRUPTED) from None
    typer.echo(document_of(result.to_dict()) if as_json else str(result))
    typer.echo(f"wrote {result.folder / 'report.html'}", err=True)


@contextlib.contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None]]:
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


def _source(
    model: str,
    weights: Path | None,
    data: str | None,
    input_shape: str | None,
    text: str | None,
    device: str,
    dtype: str | None,
    seed: int,
    weights_needed: bool,
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

    batch = None if data is None else load(data).test_batch(2, seed)
    source = resolve(
        model,
        weights=weights,
        input_shape=shape,
        text=text,
        device=device,
        dtype=dtype,
        seed=seed,
        weights_needed=weights_needed,
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


def main() -> None:
    try:
        app()
    except SkipscopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
