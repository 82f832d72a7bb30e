"""`skipscope units`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skipscope.cli.beforehand import require_folder
from skipscope.cli.option_names import in_commands
from skipscope.cli.options import Json, Memory, ModelOptions, Named, Out, Text, TextFile, names_in
from skipscope.cli.talk import command, talk
from skipscope.memory_limit import bytes_in

if TYPE_CHECKING:
    from skipscope.models import Source
    from skipscope.trace import Trunk


@command
def units(
    chosen: ModelOptions,
    text: Text = None,
    text_file: TextFile = None,
    named: Named = None,
    memory: Memory = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Run the model too, and check that its units give its output.")
    ] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """List the residual units of a model. Nothing is computed, so that the size of the inputs does not matter.

    Example: skipscope units torchvision:resnet18 --input-shape 3,64,64
    """
    require_folder(out)
    if memory is not None:
        bytes_in(memory)
    modules = names_in(named)
    found = None
    if not replay and modules is None:
        found = _without_values(chosen, text, text_file)
    source, trunk = found or _with_values(chosen, text, text_file, modules, memory)
    shown = in_commands(f"{source}\n\n{trunk}")
    if found:
        shown += "\nnote: the model was not run; --replay runs it, and checks that its units give its output"
    chosen.give(source, trunk.to_dict(), shown, None if out is None else out / "units.json", as_json)


def _without_values(chosen: ModelOptions, text: str | None, text_file: Path | None) -> tuple[Source, Trunk] | None:
    """None where the model looks at values, or something is wrong with it: a real pass tells."""
    source = chosen.source(text=text, text_file=text_file, values=False)
    import torch

    from skipscope.trace import trace

    with talk.step("tracing"):
        try:
            return source, trace(source.model, source.batch)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:  # whatever a model's own code raises at tensors without values
            first = (str(error).splitlines() or [type(error).__name__])[0]
            talk.detail(f"it cannot be traced without values, so that it is run: {first}")
            return None


def _with_values(
    chosen: ModelOptions, text: str | None, text_file: Path | None, modules: list[str] | None, memory: str | None
) -> tuple[Source, Trunk]:
    source = chosen.source(text=text, text_file=text_file, weights_needed=False, memory=memory)
    with talk.step("tracing"):
        from skipscope.trace import trace

        return source, trace(source.model, source.batch, units=modules)
