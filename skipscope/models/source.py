"""MODEL, as a user writes it, to a module and a batch that it accepts.

    skipscope:resnet56-cifar    torchvision:resnet18    timm:vit_tiny_patch16_224
    hf:gpt2    hf:./my-model    hf:model.gguf    file.py:factory

Each prefix has one function from a name to a `Recipe`; everything that is the same for all of them (the seed, the
memory check, weights from a file, device and dtype) happens here once.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.memory_limit import Memory, bytes_in, limit_while_alive
from skipscope.models.factory import EXAMPLE, Sized, factory_recipe, sized
from skipscope.models.huggingface import huggingface_recipe
from skipscope.models.memory import (
    ALLOCATE_AT_MOST,
    GIB,
    on_meta,
    on_meta_device,
    require_forward_room,
    require_room,
    size_of,
    without_values,
)
from skipscope.models.on_disk import within
from skipscope.models.origin import Origin
from skipscope.models.prompts import Prompts
from skipscope.models.recipe import BATCH_SIZE, Batch, Recipe, Wish, skipscope_recipe, timm_recipe, torchvision_recipe
from skipscope.models.request import is_pretrained, read_model, require_dtype, require_trust, require_weights
from skipscope.models.weights import load_weights
from skipscope.numerics import seed_of, usable_device

STRUCTURE = "structure only, without values"

RECIPES: dict[str, Callable[[str], Recipe]] = {
    "skipscope": skipscope_recipe,
    "torchvision": torchvision_recipe,
    "timm": timm_recipe,
}


@dataclass(frozen=True)
class Source:
    """A model with what a reader of its results must know about it."""

    model: nn.Module
    batch: Batch | None  # None only for a factory that gave no example
    description: str
    weights: str  # where the weights come from, in words
    random_weights: bool  # true where they are known to be random
    inputs: str = ""  # what the samples of a user's own example are, in words
    lacking: str = ""  # why there are fewer of them than were asked for
    prompts: Prompts | None = None  # the text of every token, where the input is text
    origin: Origin | None = None  # of a saved model: configuration, revision, files
    device: torch.device | None = None  # where the batch goes, if not where the model is: its weights are on disk
    notes: tuple[str, ...] = ()  # what a reader should know of what MODEL stands for

    def __str__(self) -> str:
        return f"{self.description}, {self.weights}"

    def to_dict(self) -> dict[str, Any]:
        return {"description": self.description, "weights": self.weights, "random_weights": self.random_weights}

    def with_batch(self, batch: Batch) -> Source:
        """The same model with another batch, moved to the model's device and dtype."""
        require_forward_room(self.model, batch, self.description)
        return self._holding(batch)

    def moved(self, batch: Batch) -> Batch:
        """To the model's device and dtype."""
        return _moved(batch, self.model, self.device)

    def _holding(self, batch: Batch) -> Source:
        _require_values(batch, self)
        return dataclasses.replace(self, batch=self.moved(batch), inputs="", lacking="")


def resolve(
    spec: str,
    *,
    weights: Path | None = None,
    input_shape: tuple[int, ...] | None = None,
    text: str | Sequence[str] | None = None,
    device: str = "cpu",
    dtype: str | None = None,
    seed: int = 0,
    weights_needed: bool = True,
    samples: int | None = None,
    trust_remote_code: bool = False,
    values: bool = True,
    memory: Memory | None = None,
) -> Source:
    """Build the model that `spec` names, with an example batch.

    weights: a file, or for hf: models also a directory or a .gguf file. text: one text, or prompts that become samples
    of one length: that of the shortest, or `input_shape`. samples: of the batch; None for the user's own example as it
    is, or as many as an export needs. trust_remote_code: run the Python code that an hf: directory comes with.
    memory: the most that may be taken while the model lives; weights that are saved for an hf: model stay on disk.

    Where only the structure is wanted (`weights_needed=False`), a large model stays on the meta device and its
    batch with it: nothing is allocated. With `values=False` so does every model, and the batch has no values whatever
    its size; a model whose constructor needs values, and a user's own, are made first and copied without them.
    """
    home, kind = usable_device(device), _dtype(dtype)
    if memory is not None:
        bytes_in(memory)  # refuses what is no size
    require_trust(spec, trust_remote_code)
    if weights is not None:
        require_weights(weights, spec)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # Libraries warn about their own defaults here; the user chose none of them.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        recipe, weights = _recipe(spec, trust_remote_code, weights, with_head=text is not None)
        asked = tuple(text) if isinstance(text, Sequence) and not isinstance(text, str) else text
        wish = Wish(input_shape, asked, BATCH_SIZE if samples is None else samples, values)
        if not values:
            return dataclasses.replace(_structure(recipe, weights, home, kind, wish), notes=recipe.notes)
        source = _on_disk(recipe, weights, home, kind, memory)
        if source is None:
            source = _built(recipe, weights, home, kind, weights_needed)
            if memory is not None:
                limit_while_alive(source.model, memory)
        with torch.device("meta"):  # where the inputs are random, none of their values are drawn
            require_forward_room(source.model, recipe.example(source.model, wish), recipe.description)
        # The batch does not depend on how the weights were drawn, and has other numbers than they have.
        torch.manual_seed(seed_of("input", seed))
        batch = recipe.example(source.model, wish)
        if batch is None:
            return source
        if recipe.another_example is None or input_shape is not None:
            prompts = recipe.prompts(wish) if recipe.prompts is not None and text is not None else None
            held = source._holding(batch)
            notes = (*recipe.notes, *recipe.notes_of_built())
            return dataclasses.replace(held, prompts=prompts, origin=recipe.origin, notes=notes)
        _require_values(batch, source)
        if kind is None:
            _require_precision(batch, source)
        own = Sized(batch, EXAMPLE) if samples is None else sized(batch, samples, recipe.another_example)
    return dataclasses.replace(source.with_batch(own.batch), inputs=own.words, lacking=own.lacking)


def resolved_at(spec: str, batch: Batch | None, *, samples: int | None = None, **options: Any) -> Source:
    """`resolve`, at a batch of the caller's own or, without one, at so many samples of the model's own example."""
    source = resolve(spec, samples=samples if batch is None else None, **options)
    if batch is not None:
        source = source.with_batch(batch)
    if source.batch is None or source.lacking:
        raise InputError(source.lacking or f"{spec} gives no example input; give a batch")
    return source


def _recipe(spec: str, trust_remote_code: bool, weights: Path | None, with_head: bool) -> tuple[Recipe, Path | None]:
    """And the weights that are still to be loaded into the model."""
    source, name = read_model(spec)
    if source == "hf":
        whole = weights if weights is not None and is_pretrained(weights) else None
        left = None if whole is not None else weights
        return huggingface_recipe(name, trust_remote_code, whole, with_head and left is None), left
    return RECIPES[source](name) if source in RECIPES else factory_recipe(source, name), weights


def _on_disk(
    recipe: Recipe, weights: Path | None, device: torch.device, dtype: torch.dtype | None, memory: Memory | None
) -> Source | None:
    """With weights that are read when they are needed; None where memory= is not given, or nothing is on disk."""
    if memory is None or recipe.mapped is None or weights is not None:
        return None
    if dtype not in (None, torch.float32):
        name = str(dtype).removeprefix("torch.")
        raise InputError(
            f"dtype='{name}' converts the model, and with memory= its weights stay on disk as they are; give one of "
            "the two"
        )
    model, words = within(recipe.mapped(), memory), f"{recipe.weights}, on disk"
    return Source(model, None, recipe.description, words, recipe.random_weights, device=device)


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
    described, random_weights = recipe.weights, recipe.random_weights
    if on_meta_device(model):
        if weights_needed or weights is not None or not all(weight.is_meta for weight in model.parameters()):
            raise InputError(
                f"{recipe.description} has weights on the meta device, which have no values to measure; build it on "
                "the cpu (skipscope units lists the units of one that is on the meta device as a whole)"
            )
        return Source(model.to(dtype=dtype), None, recipe.description, "structure only (no values)", False)
    if weights is not None:
        load_weights(model, weights)
        described, random_weights = f"weights from {weights}", False
    return Source(model.to(device=device, dtype=dtype), None, recipe.description, described, random_weights)


def _structure(
    recipe: Recipe, weights: Path | None, device: torch.device, dtype: torch.dtype | None, wish: Wish
) -> Source:
    """The model and its batch on the meta device."""
    skeleton = on_meta(recipe.skeleton) if recipe.skeleton and weights is None else None
    if skeleton is None:
        made = _built(recipe, weights, device, dtype, weights_needed=False)
        source = dataclasses.replace(made, model=without_values(made.model))
    else:
        source = Source(skeleton.to(dtype=dtype), None, recipe.description, STRUCTURE, random_weights=False)
    with torch.device("meta"):  # nothing of a random batch is drawn
        batch = recipe.example(source.model, wish)
    if batch is None:
        return source
    if recipe.another_example is not None and wish.shape is None and dtype is None:
        _require_precision(batch, source)
    return source._holding(batch)


def _require_values(batch: Batch, source: Source) -> None:
    """Refuse a batch without samples, and one without values for a model that has some."""
    for tensor in pytree.tree_leaves(batch):
        if isinstance(tensor, Tensor) and tensor.dim() and not len(tensor):
            raise InputError(
                f"{source.description}: expected a batch of one sample or more, got a tensor of shape "
                f"{tuple(tensor.shape)}"
            )
        if isinstance(tensor, Tensor) and tensor.layout is not torch.strided:
            raise InputError(f"{source.description}: expected dense tensors as its example, got a sparse one")
        if isinstance(tensor, Tensor) and tensor.is_meta and not on_meta_device(source.model):
            raise InputError(
                f"{source.description}: its example is on the meta device and has no values; make it on cpu"
            )


def _require_precision(batch: Batch, source: Source) -> None:
    """A user's own example in another precision than the weights would not run in the user's own code either."""
    weights = {t.dtype for t in source.model.parameters() if t.is_floating_point()}
    example = {t.dtype for t in pytree.tree_leaves(batch) if isinstance(t, Tensor) and t.is_floating_point()}
    if weights and example - weights:
        names = (", ".join(sorted(str(t).removeprefix("torch.") for t in some)) for some in (example, weights))
        raise InputError(
            f"{source.description}: its example is {next(names)}, its weights are {next(names)}; convert one of them, "
            "or name the precision for both with dtype="
        )


def _moved(batch: Batch, model: nn.Module, home: torch.device | None = None) -> Batch:
    """The batch where the model is, in the precision that the model computes in. home: another place for it."""
    tensors = [*model.parameters(), *model.buffers()]
    device = home or (tensors[0].device if tensors else torch.device("cpu"))
    dtype = next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.float32)

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else None)

    return pytree.tree_map_only(Tensor, move, batch)


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    require_dtype(name)
    dtype: torch.dtype = getattr(torch, name)
    return dtype
