"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipscope.cli.beforehand import require_data, require_device
from skipscope.cli.completion import DEVICES, complete_model, one_of
from skipscope.cli.talk import talk
from skipscope.data.specs import NAMES, NORMALISATIONS
from skipscope.errors import InputError
from skipscope.memory_limit import bytes_in
from skipscope.models.request import (
    DTYPES,
    read_prompts,
    require_dtype,
    require_model,
    require_text,
    require_trust,
    require_weights,
)
from skipscope.wording import counted

if TYPE_CHECKING:
    from skipscope.models import Source

SCHEMA = 1  # of what --json prints: rises where a key is renamed, removed or changes its meaning

Text = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Text as input, for an hf: directory or .gguf file with a tokenizer.")
]
TextFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Prompts as input, one per line, cut to the shortest or to the length of --input-shape."
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="The most to take, such as 8GB; weights of an hf: directory or .gguf file stay on disk."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps, ...", autocompletion=one_of(*DEVICES))]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the result into this folder.")]
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
Checkpoints = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE,...", help="Weights for every model; patterns such as 'run/step*.pt' are expanded."),
]
Full = Annotated[bool, typer.Option("--full", help="All tables below the findings.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else there.")]


@dataclass(frozen=True)
class ModelOptions:
    """The model that a command looks at, and the batch: `skipscope.cli.talk.command` makes an option of each field."""

    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="skipscope:NAME, torchvision:NAME, timm:NAME, hf:NAME_OR_DIR or file.py:factory",
            autocompletion=complete_model,
        ),
    ]
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Weights: safetensors, or a torch.save of tensors; for hf: also a .gguf file or a folder.",
        ),
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:PATH]", help="Take the batch from a data set, e.g. digits.", autocompletion=one_of(*NAMES)
        ),
    ] = None
    input_shape: Annotated[
        str | None, typer.Option(metavar="C,H,W", help="Shape of one random input; for hf: text the count of tokens.")
    ] = None
    device: Device = "cpu"
    dtype: Annotated[
        str | None,
        typer.Option(help="Convert the model: float32, float64, bfloat16, float16.", autocompletion=one_of(*DTYPES)),
    ] = None
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python code that an hf: directory comes with.")
    ] = False
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For random weights and random inputs.")] = 0

    def source(
        self,
        *,
        weights_needed: bool = True,
        values: bool = True,
        text: str | None = None,
        text_file: Path | None = None,
        samples: int | None = None,
        normalise: str = "default",
        memory: str | None = None,
    ) -> Source:
        """What is wrong at first sight is refused before torch is loaded. values: False for the structure alone."""
        require_model(self.model)
        require_trust(self.model, self.trust_remote_code)
        if self.weights is not None:
            require_weights(self.weights, self.model)
        if self.dtype is not None:
            require_dtype(self.dtype)
        if memory is not None:
            bytes_in(memory)
        require_device(self.device)
        require_data(self.data, normalise)
        inputs = {"--data": self.data, "--input-shape": self.input_shape, "--text": text, "--text-file": text_file}
        if text_file is not None:
            inputs.pop("--input-shape")  # the length of the prompts
        given = [name for name, value in inputs.items() if value is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} both say what the input is; give one of them")
        if text is not None or text_file is not None:
            require_text(self.model)
        prompts = None if text_file is None else prompts_of(text_file, samples)
        shape = None if self.input_shape is None else shape_of(self.input_shape)
        with talk.loading():
            from skipscope.data import load
            from skipscope.models import resolve
            from skipscope.models.recipe import BATCH_SIZE

        say_where(self.device)
        batch = None
        if self.data is not None:
            with talk.step(f"reading {self.data}"):
                batch = load(self.data, normalise=normalise).test_batch(samples or BATCH_SIZE, self.seed)
        with talk.step(f"building {self.model}"):
            source = resolve(
                self.model,
                weights=self.weights,
                input_shape=shape,
                text=text if prompts is None else prompts,
                device=self.device,
                dtype=self.dtype,
                seed=self.seed,
                weights_needed=weights_needed,
                samples=samples if batch is None else None,
                trust_remote_code=self.trust_remote_code,
                values=values,
                memory=memory,
            )
        for note in (*source.notes, *(source.prompts.notes if source.prompts is not None else ())):
            talk.say(f"note: {note}")
        if batch is not None:
            source = source.with_batch(batch)
        if source.batch is None:
            raise InputError(
                f"{self.model} gives no example input; let the function return (module, example), or say "
                "--input-shape C,H,W for random numbers of that shape (tokens have to come from the function)"
            )
        return source

    def give(self, source: Source, found: Mapping[str, Any], shown: str, file: Path | None, as_json: bool) -> None:
        """The result of a command, as JSON or as text; the file gets the JSON."""
        written = document({"source": {"model": self.model, **source.to_dict(), "seed": self.seed}, **found})
        if file is not None:
            from skipscope.runs import write_whole

            write_whole(file, f"{written}\n".encode())
        talk.result(written if as_json else shown)
        if file is not None:
            talk.say(f"wrote {file}")


def document(content: Mapping[str, Any]) -> str:
    """What --json prints: one mapping, with the version of its form."""
    from skipscope.runs import as_json

    return as_json({"schema": SCHEMA, **content})


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


def in_commas(texts: Sequence[str]) -> list[str]:
    """What stands between commas, of options that may be given several times."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def say_where(device: str) -> None:
    """With -v: the device, and where data sets and trained networks are looked for."""
    if not talk.verbose:
        return
    import torch

    from skipscope.data.download import root
    from skipscope.numerics import usable_device
    from skipscope.runs.files import cache_root

    found = usable_device(device)
    name = torch.cuda.get_device_name(found) if found.type == "cuda" else f"{torch.get_num_threads()} threads"
    talk.detail(f"device {found} ({name}); data sets in {root()}; trained networks in {cache_root()}")


def prompts_of(file: Path, samples: int | None) -> tuple[str, ...]:
    """The first of a file."""
    prompts = read_prompts(file)
    if samples is not None and samples > len(prompts):
        raise InputError(f"--samples {samples}: {file} has {counted(len(prompts), 'prompt')}; give as many lines")
    return prompts[:samples]


def shape_of(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(f"--input-shape {text}: expected positive whole numbers with commas, such as 3,224,224")
    return shape
