"""MODEL, as a user writes it, to a module and a batch that it accepts.

    skipscope:resnet56-cifar    torchvision:resnet18    timm:vit_tiny_patch16_224
    hf:gpt2    hf:./my-model    file.py:factory

Each prefix has one function from a name to a `Recipe`; everything that is the same for all of them (the seed, the
memory check, weights from a file, device and dtype) happens here once.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.models.factory import factory_recipe
from skipscope.models.huggingface import huggingface_recipe
from skipscope.models.libraries import timm_recipe, torchvision_recipe
from skipscope.models.memory import ALLOCATE_AT_MOST, GIB, on_meta, require_room, size_of
from skipscope.models.own import skipscope_recipe
from skipscope.models.recipe import BATCH_SIZE, Batch, Recipe, Wish
from skipscope.models.weights import load_weights, require_file
from skipscope.numerics import seed_of, usable_device

RECIPES: dict[str, Callable[[str], Recipe]] = {
    "skipscope": skipscope_recipe,
    "torchvision": torchvision_recipe,
    "timm": timm_recipe,
    "hf": huggingface_recipe,
}


@dataclass(frozen=True)
class Source:
    """A model with what a reader of its results must know about it."""

    model: nn.Module
    batch: Batch | None  # None only for a factory that gave no example
    description: str
    weights: str  # where the weights come from, in words
    random_weights: bool  # true where they are known to be random

    def __str__(self) -> str:
        return f"{self.description}, {self.weights}"

    def to_dict(self) -> dict[str, Any]:
        return {"description": self.description, "weights": self.weights, "random_weights": self.random_weights}

    def with_batch(self, batch: Batch) -> Source:
        """The same model with another batch, moved to the model's device and dtype."""
        for tensor in pytree.tree_leaves(batch):
            if isinstance(tensor, Tensor) and tensor.dim() and not len(tensor):
                raise InputError(
                    f"{self.description}: expected a batch of one sample or more, got a tensor of shape "
                    f"{tuple(tensor.shape)}"
                )
        return dataclasses.replace(self, batch=_moved(batch, self.model))


def resolve(
    spec: str,
    *,
    weights: Path | None = None,
    input_shape: tuple[int, ...] | None = None,
    text: str | None = None,
    device: str = "cpu",
    dtype: str | None = None,
    seed: int = 0,
    weights_needed: bool = True,
    samples: int = BATCH_SIZE,
) -> Source:
    """Build the model that `spec` names, with an example batch.

    Where only the structure is wanted (`weights_needed=False`), a large model stays on the meta device and its
    batch with it: nothing is allocated.
    """
    home, kind = usable_device(device), _dtype(dtype)
    if weights is not None:
        require_file(weights)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # Libraries warn about their own defaults here; the user chose none of them.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        recipe = _recipe(spec)
        source = _built(recipe, weights, home, kind, weights_needed)
        # The batch does not depend on how the weights were drawn, and has other numbers than they have.
        torch.manual_seed(seed_of("input", seed))
        batch = recipe.example(source.model, Wish(input_shape, text, samples))
    return source if batch is None else source.with_batch(batch)


def _recipe(spec: str) -> Recipe:
    prefix, colon, name = spec.partition(":")
    if prefix in RECIPES and name:
        return RECIPES[prefix](name)
    file, _, factory = spec.rpartition(":")
    if file.endswith(".py"):
        return factory_recipe(file, factory)
    known = ", ".join(f"{known}:NAME" for known in RECIPES)
    what = f"unknown prefix '{prefix}:' in" if colon and prefix not in RECIPES else "cannot read"
    raise InputError(f"{what} MODEL '{spec}'; expected {known} or file.py:factory, for example torchvision:resnet18")


def _built(
    recipe: Recipe, weights: Path | None, device: torch.device, dtype: torch.dtype | None, weights_needed: bool
) -> Source:
    skeleton = on_meta(recipe.skeleton) if recipe.skeleton else None
    if skeleton is not None:
        size = size_of(skeleton)
        if not weights_needed and weights is None and size > ALLOCATE_AT_MOST:
            note = f"structure only ({size / GIB:.1f} GiB of weights not allocated)"
            return Source(skeleton.to(dtype=dtype), None, recipe.description, note, random_weights=False)
        require_room(size, torch.device("cpu"), recipe.description)
        if device.type != "cpu":
            require_room(size, device, recipe.description)
    model = recipe.build()
    said, random_weights = recipe.weights, recipe.random_weights
    if weights is not None:
        load_weights(model, weights)
        said, random_weights = f"weights from {weights}", False
    return Source(model.to(device=device, dtype=dtype), None, recipe.description, said, random_weights)


def _moved(batch: Batch, model: nn.Module) -> Batch:
    """The batch where the model is, in the precision that the model computes in."""
    tensors = [*model.parameters(), *model.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    dtype = next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.float32)

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else None)

    return pytree.tree_map_only(Tensor, move, batch)


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputError(f"--dtype {name} is not a floating-point type; use float32, float64, bfloat16 or float16")
    return dtype
