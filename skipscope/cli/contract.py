"""`skipscope contract`."""

from __future__ import annotations

from typing import Annotated

import typer

from skipscope.cli.beforehand import require_folder
from skipscope.cli.completion import one_of
from skipscope.cli.options import Json, ModelOptions, Out, Text
from skipscope.cli.talk import CLAIM_FAILED, command, talk
from skipscope.errors import InputError

LIBRARIES = ("json", "nnsight", "transformerlens")


@command
def contract(
    chosen: ModelOptions,
    text: Text = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="LIBRARY",
            help="Print the map that users of a library apply: nnsight, transformerlens, or json for plain hooks.",
            autocompletion=one_of(*LIBRARIES),
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 unless it holds for every unit.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Which module's output is the branch of which unit, asserted with hooks on the model.

    Example: skipscope contract torchvision:resnet18 --input-shape 3,64,64
    """
    require_folder(out)
    if export is not None and export not in LIBRARIES:
        raise InputError(f"--export {export}: expected one of {', '.join(LIBRARIES)}")
    source = chosen.source(text=text)
    with talk.step("tracing"):
        from skipscope.trace import trace

        trunk = trace(source.model, source.batch)
    with talk.step("asserting"):
        found = trunk.contract()
    if export is None:
        shown = f"{source}\n\n{found}"
        chosen.give(source, found.to_dict(), shown, None if out is None else out / "contract.json", as_json)
    else:
        file = None if out is None else out / f"contract-{export}.json"
        chosen.give(source, found.export(export), "", file, as_json=True)
    if strict and not found.holds:
        failing = [unit.unit for unit in found.units if not unit.holds]
        talk.say(f"it does not hold for {', '.join(failing)}")
        raise typer.Exit(CLAIM_FAILED)
