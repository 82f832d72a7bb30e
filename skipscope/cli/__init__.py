"""The command line. Everything that takes its time to import is imported inside the commands that need it: help,
version and completion answer at once.

Results go to standard output and everything else to standard error (`skipscope.cli.talk`). A `SkipscopeError` becomes
one line and exit code 2, and so, with exit code 71, does a lack of memory; Ctrl-C and SIGTERM end a command with 130
and 143 (`skipscope.cli.stopping`). Any other exception is a bug, and ends with its traceback and exit code 70.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from skipscope import __version__
from skipscope.cli.cache import cache
from skipscope.cli.check import check
from skipscope.cli.contract import contract
from skipscope.cli.demo import demo
from skipscope.cli.inspect import inspect
from skipscope.cli.report import report
from skipscope.cli.runs import runs
from skipscope.cli.stopping import ended_by_sigterm, lack_of_memory
from skipscope.cli.sweep import sweep
from skipscope.cli.talk import (
    BAD_INPUT,
    BUG,
    DONE,
    INTERRUPTED,
    OUT_OF_MEMORY,
    TERMINATED,
    Quiet,
    Verbose,
    command,
    help_without_command,
    talk,
)
from skipscope.cli.train import train
from skipscope.cli.units import units
from skipscope.errors import InputError, SkipscopeError, Terminated, out_of_memory
from skipscope.registration import OURS, ours_are_installed

EPILOG = """\b
Exit codes:
  0    done
  1    a claim is not reproduced, a model is not expected to train, or a unit has no map, with --strict
  2    bad input: the line on standard error says what was expected
  70   a bug, with its traceback
  71   out of memory in the middle of the work
  130  interrupted with Ctrl-C
  141  the reader of the output closed the pipe
  143  ended by SIGTERM
"""


def study_command() -> typer.Typer:
    """`skipscope study`, which the papers bring with them; without papers it says that none is installed."""
    if ours_are_installed():
        return import_module(f"{OURS}.kit.command").study
    app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    app.callback()(_no_papers)  # runs before a command of it, whatever that is given
    for name in ("list", "show", "run"):
        app.command(name)(_no_papers)
    return app


@command
def _no_papers() -> None:
    """The papers' experiments. No paper is installed here."""
    raise InputError(f"study: no paper is installed; the package {OURS} holds those that come with skipscope")


app = typer.Typer(
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for each in (demo, units, contract, check, inspect, sweep, train, report):
    app.command()(each)
app.add_typer(study_command(), name="study")
app.add_typer(runs, name="runs")
app.add_typer(cache, name="cache")

# The base of all usage errors, which typer has no name for.
UsageError: Any = typer.BadParameter.__mro__[1]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skipscope {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Shows what the skip connections do inside a PyTorch network.

    Example: skipscope demo
    """
    talk.set(quiet, verbose)
    help_without_command(context)


def main() -> None:
    try:
        talk.reset()
        with ended_by_sigterm():
            code = app(prog_name="skipscope", standalone_mode=False)
    except SkipscopeError as error:
        talk.error(error)
        code = BAD_INPUT
    except UsageError as error:
        talk.error(_in_our_words(error))
        code = BAD_INPUT
    except (KeyboardInterrupt, typer.Abort) as error:
        code = TERMINATED if isinstance(error, Terminated) else INTERRUPTED
    except Exception as error:
        if out_of_memory(error):
            talk.error(lack_of_memory(error))
            code = OUT_OF_MEMORY
        else:  # a bug, with an exit code of its own
            talk.traceback(error)
            code = BUG
    raise SystemExit(code if isinstance(code, int) else DONE)


def _in_our_words(error: Any) -> InputError:
    """What typer has to say about the arguments: in one line, with what there is to choose from."""
    message, question, meant = error.format_message().rstrip(".").partition(". Did you mean ")
    possible = sorted(getattr(error, "possibilities", None) or ())
    if possible:
        message, question, meant = error.message, "?", f"{' or '.join(possible)}?"
    parts = [message[:1].lower() + message[1:] + (f" (did you mean {meant})" if question else "")]
    if error.ctx is not None:
        if "No such command" in message:
            parts.append(f"there are {', '.join(error.ctx.command.commands)}")
        parts.append(f"see {error.ctx.command_path} --help")
    return InputError("; ".join(parts))
