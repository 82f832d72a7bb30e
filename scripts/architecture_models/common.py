"""What one model of the corpus is, and the inputs that many of them share.

The expected number of units is a promise made before any trace: it is read from the model's own forward code, and
`source` says where, so that a reader can count again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Batch = Callable[[int], Any]


@dataclass(frozen=True)
class Model:
    """A model, its input by batch size, and the residual units that its design has."""

    make: Callable[[], nn.Module]
    x: Batch
    known: int
    source: str = ""  # the file and the lines of the residual sums that were counted
    remark: str = ""  # why the known number is what it is, where a reader might expect another


class WithOptions(nn.Module):
    """A model that is always called with the same keyword arguments.

    Options such as `output_attentions` are constants: they must reach the forward pass, yet are no inputs.
    """

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model = model
        self.options = options

    def forward(self, **inputs: Any) -> Any:
        return self.model(**inputs, **self.options)


def with_options(make: Callable[[], nn.Module], **options: Any) -> Callable[[], nn.Module]:
    return lambda: WithOptions(make(), **options)


def part_of(make: Callable[[], nn.Module], name: str) -> Callable[[], nn.Module]:
    """A submodule by its name, where the whole model has a step (a quantiser, a search) that is no network."""
    return lambda: make().get_submodule(name)


def live_head(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A model whose classifier starts at zero, with random weights there.

    Otherwise its output is zero whatever it reads, and a replay that is wrong would still agree with it.
    """

    def made() -> nn.Module:
        model = make()
        for module in model.modules():
            if isinstance(module, nn.Linear) and not module.weight.any():
                nn.init.normal_(module.weight, std=0.1)
        return model

    return made


def images(side: int, channels: int = 3) -> Batch:
    return lambda batch: torch.randn(batch, channels, side, side)


def videos(frames: int, side: int) -> Batch:
    """Channels before frames, as torchvision has it."""
    return lambda batch: torch.randn(batch, 3, frames, side, side)


def pixels(side: int) -> Batch:
    return lambda batch: {"pixel_values": torch.randn(batch, 3, side, side)}


def frames(number: int, side: int) -> Batch:
    """Frames before channels, as Hugging Face has it."""
    return lambda batch: {"pixel_values": torch.randn(batch, number, 3, side, side)}


def tokens(length: int = 6, vocabulary: int = 64) -> Batch:
    """Keyword inputs, as language models are called; the first two ids are often reserved for padding."""
    return lambda batch: {"input_ids": torch.randint(2, vocabulary, (batch, length))}


def source_and_target(batch: int) -> dict[str, Tensor]:
    return {
        "input_ids": torch.randint(3, 64, (batch, 6)),
        "decoder_input_ids": torch.randint(3, 64, (batch, 4)),
    }


def waveform(length: int = 400) -> Batch:
    return lambda batch: {"input_values": torch.randn(batch, length)}


def features(length: int, channels: int, name: str = "input_features") -> Batch:
    """A sequence of feature vectors, as speech encoders read it."""
    return lambda batch: {name: torch.randn(batch, length, channels)}
