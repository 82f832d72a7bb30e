"""What each kind of MODEL has to say about itself before anything is built: a `Recipe`.

Here are the recipes of our own networks (skipscope:NAME) and of torchvision and timm, by the names that these libraries
give their models; `huggingface.py` and `factory.py` have the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.library_names import unknown_name
from skipscope.models.memory import require_input_room
from skipscope.models.names import build, parse
from skipscope.models.origin import Origin
from skipscope.models.prompts import Prompts
from skipscope.models.request import no_text

BATCH_SIZE = 2  # a batch of one would specialise an exported graph
IMAGE = (3, 224, 224)
FRAMES = 16  # the clip length that torchvision's video networks were trained with

Batch = Tensor | tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """The inputs that the user asked for; with neither, the model's own default is used."""

    shape: tuple[int, ...] | None = None
    text: str | tuple[str, ...] | None = None  # one text, or several prompts that become samples of one length
    samples: int = BATCH_SIZE
    values: bool = True  # False where the structure is all that is wanted: the batch will stay on the meta device


@dataclass(frozen=True)
class Recipe:
    """How to make a model and an example batch for it.

    `build` is the only costly step, so that a model's size can be checked first, on `skeleton`: the same model
    made on the meta device, which allocates nothing. Where `example` gives a batch of the user's own, of whatever size,
    `another_example` gives another one. `mapped` makes it with its weights on disk. `origin` says where a saved
    model comes from.
    """

    description: str
    build: Callable[[], nn.Module]
    example: Callable[[nn.Module, Wish], Batch | None]
    skeleton: Callable[[], nn.Module] | None = None
    another_example: Callable[[], Batch | None] | None = None
    weights: str = "random weights"
    random_weights: bool = True
    prompts: Callable[[Wish], Prompts] | None = None  # the tokens of the wish's text, with their own text
    origin: Origin | None = None
    mapped: Callable[[], nn.Module] | None = None
    notes: tuple[str, ...] = ()  # what a reader should know of what the name stands for
    notes_of_built: Callable[[], tuple[str, ...]] = tuple  # and of the model, once `build` has made it


def random_images(shape: Sequence[int], wish: Wish) -> Tensor:
    """Standard normal numbers: what a normalised image looks like to a network."""
    require_input_room((wish.samples, *shape), torch.get_default_dtype(), wish.values)
    return torch.randn(wish.samples, *shape)


def refuse_text(wish: Wish, description: str) -> None:
    if wish.text is not None:
        raise no_text(description)


def skipscope_recipe(name: str) -> Recipe:
    shape = parse(name)["input_shape"]
    return _of_images("skipscope", name, lambda: build(name).eval(), lambda model: shape)


def torchvision_recipe(name: str) -> Recipe:
    """A torchvision network; those for video get clips as their weights' own transforms cut them."""
    from torchvision import models

    if name not in models.list_models():
        raise unknown_name("torchvision", name, models.list_models())
    family = models.get_model_builder(name).__module__.removeprefix("torchvision.models.").split(".")[0]
    if family == "detection":
        raise InputError(
            f"torchvision:{name} takes lists of images and targets; wrap the part to look at, such as its backbone, "
            "in a function and name it as file.py:function"
        )

    def shape(model: nn.Module) -> Sequence[int]:
        if family != "video":
            return IMAGE
        return (3, FRAMES, *models.get_model_weights(name).DEFAULT.transforms().crop_size)

    return _of_images("torchvision", name, lambda: models.get_model(name, weights=None).eval(), shape)


def timm_recipe(name: str) -> Recipe:
    """A timm network, with the input size of its own configuration."""
    try:
        import timm
    except ModuleNotFoundError as error:
        raise InputError("timm is not installed; install skipscope[models] or timm") from error

    # create_model would also take hub addresses and then reach for the network.
    if not timm.is_model(name.partition(".")[0]):
        raise unknown_name("timm", name, timm.list_models())

    def build() -> nn.Module:
        try:
            return timm.create_model(name, pretrained=False).eval()
        except (RuntimeError, ValueError) as error:
            raise InputError(f"timm cannot build '{name}': {error}") from error

    return _of_images(
        "timm", name, build, lambda model: getattr(model, "pretrained_cfg", {}).get("input_size") or IMAGE
    )


def _of_images(
    library: str, name: str, make: Callable[[], nn.Module], shape: Callable[[nn.Module], Sequence[int]]
) -> Recipe:
    """shape: of an image, where the user names none."""

    def example(model: nn.Module, wish: Wish) -> Batch:
        refuse_text(wish, f"{library}:{name}")
        return random_images(wish.shape or shape(model), wish)

    return Recipe(f"{library} {name}", make, example, skeleton=make)
