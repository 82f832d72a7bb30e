"""`skipscope units`."""

from __future__ import annotations

from skipscope.cli.beforehand import require_folder
from skipscope.cli.option_names import in_commands
from skipscope.cli.options import Json, ModelOptions, Named, Out, Text, names_in
from skipscope.cli.talk import command, talk


@command
def units(chosen: ModelOptions, text: Text = None, named: Named = None, out: Out = None, as_json: Json = False) -> None:
    """List the residual units of a model.

    Example: skipscope units torchvision:resnet18 --input-shape 3,64,64
    """
    require_folder(out)
    modules = names_in(named)
    source = chosen.source(text=text, weights_needed=False)
    with talk.step("tracing"):
        from skipscope.trace import trace

        trunk = trace(source.model, source.batch, units=modules)
    shown = in_commands(f"{source}\n\n{trunk}")
    chosen.give(source, trunk.to_dict(), shown, None if out is None else out / "units.json", as_json)
