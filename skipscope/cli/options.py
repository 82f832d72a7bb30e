"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipscope.cli.beforehand import require_data, require_device
from skipscope.cli.completion import DEVICES, complete_model, one_of
from skipscope.cli.talk import talk
from skipscope.data.specs import NAMES, NORMALISATIONS
from skipscope.errors import InputError
from skipscope.models.request import (
    DTYPES,
    require_dtype,
    require_model,
    require_text,
    require_trust,
    require_weights,
)

if TYPE_CHECKING:
    from skipscope.models import Source

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="skipscope:NAME, torchvision:NAME, timm:NAME, hf:NAME_OR_DIR or file.py:factory",
        autocompletion=complete_model,
    ),
]
Weights = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights: safetensors, or a torch.save of tensors.")]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:PATH]", help="Take the batch from a data set, e.g. digits.", autocompletion=one_of(*NAMES)
    ),
]
InputShape = Annotated[
    str | None, typer.Option(metavar="C,H,W", help="Shape of one random input; for text the count of tokens.")
]
Text = Annotated[str | None, typer.Option(metavar="TEXT", help="Text as input, for an hf: directory with a tokenizer.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps, ...", autocompletion=one_of(*DEVICES))]
Dtype = Annotated[
    str | None,
    typer.Option(help="Convert the model: float32, float64, bfloat16, float16.", autocompletion=one_of(*DTYPES)),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For random weights and random inputs.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the result into this folder.")]
Samples = Annotated[int, typer.Option(min=1, help="How many inputs to measure at.")]
Normalise = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Of images: default, none, imagenet, dataset, or means/deviations.",
        autocompletion=one_of(*NORMALISATIONS),
    ),
]
Named = Annotated[
    str | None,
    typer.Option(
        "--units", metavar="NAME,...", help="Modules that are residual units, where the model cannot be exported."
    ),
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the Python code that an hf: directory comes with.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else there.")]


def document(content: Any) -> str:
    from skipscope.runs import as_json

    return as_json(content)


def folder_name(text: str) -> str:
    """A model's name as part of a folder's: without separators, and not longer than file systems take."""
    return re.sub(r"[^\w.-]+", "-", text)[-100:].strip("-.") or "model"


def names_in(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"--units '{text}': expected paths of modules with commas, such as blocks.0,blocks.1")
    return names


def source_of(
    model: str,
    weights: Path | None,
    data: str | None,
    input_shape: str | None,
    text: str | None,
    device: str,
    dtype: str | None,
    seed: int,
    weights_needed: bool,
    samples: int | None = None,
    normalise: str = "default",
    trust_remote_code: bool = False,
) -> Source:
    """What is wrong at first sight is refused before torch is loaded."""
    require_model(model)
    require_trust(model, trust_remote_code)
    if weights is not None:
        require_weights(weights)
    if dtype is not None:
        require_dtype(dtype)
    require_device(device)
    require_data(data, normalise)
    given = [
        name
        for name, value in (("--data", data), ("--input-shape", input_shape), ("--text", text))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} both say what the input is; give one of them")
    if text is not None:
        require_text(model)
    shape = None if input_shape is None else _shape(input_shape)
    with talk.loading():
        from skipscope.data import load
        from skipscope.models import resolve
        from skipscope.models.recipe import BATCH_SIZE

    say_where(device)
    batch = None
    if data is not None:
        with talk.step(f"reading {data}"):
            batch = load(data, normalise=normalise).test_batch(samples or BATCH_SIZE, seed)
    with talk.step(f"building {model}"):
        source = resolve(
            model,
            weights=weights,
            input_shape=shape,
            text=text,
            device=device,
            dtype=dtype,
            seed=seed,
            weights_needed=weights_needed,
            samples=samples if batch is None else None,
            trust_remote_code=trust_remote_code,
        )
    if batch is not None:
        source = source.with_batch(batch)
    if source.batch is None:
        raise InputError(
            f"{model} gives no example input; let the function return (module, example) or say --input-shape C,H,W"
        )
    return source


def say_where(device: str) -> None:
    """With -v: the device, and where data sets and trained networks are looked for."""
    if not talk.verbose:
        return
    import torch

    from skipscope.data.catalogue import root
    from skipscope.numerics import usable_device
    from skipscope.runs.files import cache_root

    found = usable_device(device)
    name = torch.cuda.get_device_name(found) if found.type == "cuda" else f"{torch.get_num_threads()} threads"
    talk.detail(f"device {found} ({name}); data sets in {root()}; trained networks in {cache_root()}")


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(f"--input-shape {text}: expected positive whole numbers with commas, such as 3,224,224")
    return shape
