"""What each kind of MODEL has to say about itself before anything is built."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.memory import require_input_room
from skipscope.models.request import no_text

BATCH_SIZE = 2  # a batch of one would specialise an exported graph

Batch = Tensor | tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """The inputs that the user asked for; with neither, the model's own default is used."""

    shape: tuple[int, ...] | None = None
    text: str | None = None
    samples: int = BATCH_SIZE


@dataclass(frozen=True)
class Recipe:
    """How to make a model and an example batch for it.

    `build` is the only costly step, so that a model's size can be checked first, on `skeleton`: the same model
    made on the meta device, which allocates nothing. Where `example` gives a batch of the user's own, of whatever size,
    `another_example` gives another one.
    """

    description: str
    build: Callable[[], nn.Module]
    example: Callable[[nn.Module, Wish], Batch | None]
    skeleton: Callable[[], nn.Module] | None = None
    another_example: Callable[[], Batch | None] | None = None
    weights: str = "random weights"
    random_weights: bool = True


def random_images(shape: Sequence[int], samples: int = BATCH_SIZE) -> Tensor:
    """Standard normal numbers: what a normalised image looks like to a network."""
    require_input_room((samples, *shape), torch.get_default_dtype())
    return torch.randn(samples, *shape)


def random_tokens(vocabulary: int, count: int, samples: int = BATCH_SIZE) -> Tensor:
    require_input_room((samples, count), torch.int64)
    return torch.randint(vocabulary, (samples, count))


def refuse_text(wish: Wish, description: str) -> None:
    if wish.text is not None:
        raise no_text(description)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that a library does not have, with the names that it may have meant."""
    known = list(known)
    longer = [candidate for candidate in known if candidate.startswith(name)]
    close = longer[:4] or difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    hint = f"; did you mean {', '.join(close)}?" if close else f"; it knows {len(known)} names, such as {known[0]}"
    return InputError(f"{kind} has no model '{name}'{hint}")
