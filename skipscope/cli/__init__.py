"""The command line. The package brings torch with it, which takes some seconds; all other heavy libraries are imported
inside the commands that need them.

Results go to standard output and everything else to standard error. A `SkipscopeError` becomes one line and exit
code 2; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from skipscope import __version__
from skipscope.cli.demo import demo
from skipscope.cli.inspect import inspect
from skipscope.cli.report import report
from skipscope.cli.study import study
from skipscope.cli.train import train
from skipscope.cli.units import units
from skipscope.errors import SkipscopeError

app = typer.Typer(
    help="Shows what the skip connections do inside a PyTorch network.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (demo, units, inspect, train, report):
    app.command()(command)
app.add_typer(study, name="study")


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


def main() -> None:
    try:
        app()
    except SkipscopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
