"""`skipscope study`, which the papers bring with them; without papers it says that none is installed."""

from __future__ import annotations

from importlib import import_module

import typer

from skipscope.cli.talk import command
from skipscope.errors import InputError
from skipscope.registration import OURS, ours_are_installed


def study_command() -> typer.Typer:
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
