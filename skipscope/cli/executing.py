"""Options of commands whose work can be split into tasks: where these are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from skipscope.cli.completion import one_of
from skipscope.errors import InputError
from skipscope.runs.executors.execution import EXECUTORS, Execution


@dataclass(frozen=True)
class ExecutionOptions:
    """`skipscope.cli.talk.command` makes an option of each field."""

    executor: Annotated[
        str | None,
        typer.Option(
            help="Split the work into tasks of one thread, computed here, by processes, on ray or by slurm.",
            autocompletion=one_of(**EXECUTORS),
        ),
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="Tasks at a time.")] = None
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Of a Ray cluster, or auto; without it Ray starts on this machine.")
    ] = ""
    gpus_per_task: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="GPUs that a task asks for, such as 0.5; 1 with --device cuda."),
    ] = None
    slurm: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of Slurm such as partition=gpu; may be given several times."),
    ] = None

    def execution(self, device: str) -> Execution | None:
        """None where no executor was chosen. What is wrong is refused before torch is loaded."""
        if self.executor is None:
            given = {
                "--workers": self.workers,
                "--address": self.address,
                "--gpus-per-task": self.gpus_per_task,
                "--slurm": self.slurm,
            }
            useless = [name for name, value in given.items() if value]
            if useless:
                raise InputError(f"{useless[0]} is for tasks; choose --executor processes, ray or slurm too")
            return None
        share = self.gpus_per_task
        if share is None:
            share = 1.0 if device.startswith("cuda") and self.executor != "here" else 0.0
        return Execution(
            self.executor,
            self.workers or 1,
            self.address,
            share,
            slurm=_pairs(self.slurm or []),
        )


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"--slurm {text}: expected KEY=VALUE, such as --slurm partition=gpu")
        found[key] = value
    return found
