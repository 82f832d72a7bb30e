"""`skipscope units`."""

from __future__ import annotations

from skipscope.cli.beforehand import require_folder
from skipscope.cli.option_names import in_commands
from skipscope.cli.options import (
    Data,
    Device,
    Dtype,
    InputShape,
    Json,
    Model,
    Named,
    Out,
    Seed,
    Text,
    TrustRemoteCode,
    Weights,
    document,
    names_in,
    source_of,
)
from skipscope.cli.talk import command, talk


@command
def units(
    model: Model,
    weights: Weights = None,
    data: Data = None,
    input_shape: InputShape = None,
    text: Text = None,
    device: Device = "cpu",
    dtype: Dtype = None,
    named: Named = None,
    trust_remote_code: TrustRemoteCode = False,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """List the residual units of a model.

    Example: skipscope units torchvision:resnet18 --input-shape 3,64,64
    """
    require_folder(out)
    modules = names_in(named)
    source = source_of(
        model,
        weights,
        data,
        input_shape,
        text,
        device,
        dtype,
        seed,
        weights_needed=False,
        trust_remote_code=trust_remote_code,
    )
    with talk.step("tracing"):
        from skipscope.trace import trace

        trunk = trace(source.model, source.batch, units=modules)
    written = document({"source": {"model": model, **source.to_dict(), "seed": seed}, **trunk.to_dict()})
    if out is not None:
        from skipscope.runs import write_whole

        write_whole(out / "units.json", lambda path: path.write_text(f"{written}\n", encoding="utf-8"))
    talk.result(written if as_json else in_commands(f"{source}\n\n{trunk}"))
    if out is not None:
        talk.say(f"wrote {out / 'units.json'}")
