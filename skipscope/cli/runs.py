"""`skipscope runs verify`: is every file of a run folder as the run wrote it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipscope.cli.beforehand import require_runs
from skipscope.cli.options import Json, document
from skipscope.cli.talk import BAD_INPUT, Quiet, Verbose, command, help_without_command, talk
from skipscope.errors import SkipscopeError
from skipscope.text_table import in_columns
from skipscope.wording import counted

if TYPE_CHECKING:
    from skipscope.runs.verifying import VerifiedRun

runs = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@runs.callback()
def options(context: typer.Context, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Run folders: are their files as they were written?

    Example: skipscope runs verify runs/D.law-quick
    """
    talk.set(quiet, verbose)
    help_without_command(context)


@runs.command()
@command
def verify(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    as_json: Json = False,
) -> None:
    """Compare every file of run folders with its SHA-256 and read it. Exit code 2 if one is not as it was written.

    Example: skipscope runs verify runs/D.law-quick runs/D.law-full
    """
    require_runs(folders, readable=False)
    with talk.loading():
        from skipscope.runs.verifying import verify_run

    found = []
    for number, folder in enumerate(folders):
        talk.progress("reading run folders", number, len(folders))
        found.append(verify_run(folder))
    talk.progress("reading run folders", len(folders), len(folders))
    if as_json:
        talk.result(document({"runs": [one.to_dict() for one in found], "good": not any(one.bad for one in found)}))
    else:
        talk.result("\n\n".join("\n".join(_table(one)) for one in found))
    bad = [f"{one.path / file.name} ({file.state})" for one in found for file in one.bad]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        talk.error(
            SkipscopeError(f"not as the run wrote it: {bad[0]}{more}; put back a copy, or run the command again")
        )
        raise typer.Exit(BAD_INPUT)


def _table(run: VerifiedRun) -> list[str]:
    rows = [[file.name, file.state, "" if file.size is None else f"{file.size:,}", file.about] for file in run.files]
    about = f"{run.what}, {run.status}" if run.what else "its record cannot be read"
    many = counted(len(run.files), "file")
    sentence = f"{len(run.bad)} of {many} not as the run wrote them" if run.bad else f"{many}, none of them damaged"
    title = f"{run.path}: {about}; {sentence}"
    return [title, *in_columns(rows, right=(2,), titles=["file", "state", "bytes", "what is known"])]
