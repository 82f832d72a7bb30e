"""Hugging Face models, always offline: a saved directory, a repository in the local cache, or a model type.

A model type (`gpt2`, `llama`, ...) gives that type's default configuration with random weights; some defaults are
huge, which is why a recipe has a skeleton.

A directory may come with Python code of its own. It is run only where the user says so: transformers gets a yes or no
everywhere, because it would ask at the terminal otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.library_names import unknown_name
from skipscope.models.memory import require_input_room
from skipscope.models.recipe import BATCH_SIZE, Batch, Recipe, Wish, random_images
from skipscope.models.request import there

TOKENS = 16
IMAGE_SIDE = 224  # for networks whose configuration leaves the image's size open
WEIGHT_FILES = ("*.safetensors", "*.bin")


def huggingface_recipe(name: str, trust_remote_code: bool = False) -> Recipe:
    """trust_remote_code: run the Python code that a directory comes with, where it has some."""
    transformers = _transformers()
    trusted = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    directory = Path(name)
    if there(directory.is_dir):
        has_weights = any(any(directory.glob(pattern)) for pattern in WEIGHT_FILES)
        return _saved(transformers, name, trusted, has_weights)
    if name in transformers.CONFIG_MAPPING:
        config = transformers.CONFIG_MAPPING[name]()
        return _recipe(transformers, f"Hugging Face {name} (default configuration)", name, config, trusted)
    if "/" in name and not directory.is_absolute():
        return _saved(transformers, name, trusted, has_weights=True)
    raise unknown_name("Hugging Face", name, transformers.CONFIG_MAPPING)


def _transformers() -> Any:
    # Read when the library is first imported; local_files_only alone does not stop its background look-ups.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise InputError("transformers is not installed; install skipscope[models] or transformers") from error
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _saved(transformers: Any, name: str, trusted: dict[str, bool], has_weights: bool) -> Recipe:
    """A directory, or a repository that the local cache holds."""
    config = _offline(name, lambda: transformers.AutoConfig.from_pretrained(name, **trusted))

    def trained() -> nn.Module:
        return _offline(name, lambda: transformers.AutoModel.from_pretrained(name, **trusted).eval())

    return _recipe(transformers, f"Hugging Face {name}", name, config, trusted, trained if has_weights else None)


def _recipe(
    transformers: Any,
    description: str,
    name: str,
    config: Any,
    trusted: dict[str, bool],
    trained: Callable[[], nn.Module] | None = None,
) -> Recipe:
    def untrained() -> nn.Module:
        try:
            own_code = trusted["trust_remote_code"]
            return transformers.AutoModel.from_config(config, trust_remote_code=own_code).eval()
        except ValueError as error:
            _refuse_own_code(name, error)
            raise InputError(
                f"hf:{name} has no single model that can be built from its configuration: {error}"
            ) from error

    def example(model: nn.Module, wish: Wish) -> Batch:
        if wish.text is not None:
            ids = _tokens(transformers, name, config, trusted, wish.text)
            return _language_inputs(config, ids)
        return _example(model, config, wish, name)

    if trained is None:
        return Recipe(description, untrained, example, skeleton=untrained)
    return Recipe(
        description, trained, example, skeleton=untrained, weights=f"weights from {name}", random_weights=False
    )


def _refuse_own_code(name: str, error: Exception) -> None:
    """Where transformers stopped because the directory's own code was not trusted."""
    if "trust_remote_code" in str(error):
        raise InputError(
            f"hf:{name} needs the Python code that comes with it, which is not run unless you say so: read it, and "
            "give trust_remote_code=True if you trust it"
        ) from error


def _offline(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (OSError, ValueError, KeyError, ImportError) as error:
        _refuse_own_code(name, error)
        absent = isinstance(error, OSError) and not there(Path(name).is_dir)
        reason = "no such directory, and not in the local cache" if absent else str(error).strip().split("\n")[0]
        raise InputError(
            f"hf:{name} cannot be loaded ({reason}); nothing is downloaded: give a directory made with save_pretrained "
            "or a model type such as gpt2, bert, llama, t5, vit"
        ) from error


def _example(model: nn.Module, config: Any, wish: Wish, name: str) -> Batch:
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values":
        channels, side = getattr(config, "num_channels", 3), getattr(config, "image_size", None) or IMAGE_SIDE
        height, width = (side, side) if isinstance(side, int) else side
        return {main: random_images(wish.shape or (channels, height, width), wish)}
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    if main == "input_ids" and vocabulary:
        shape = wish.shape or (min(TOKENS, _longest(config) or TOKENS),)
        if len(shape) != 1:
            raise InputError(f"hf:{name} takes tokens: input_shape= is one number, the count of tokens, got {shape}")
        return _language_inputs(config, _random_tokens(config, vocabulary, *shape, wish))
    if wish.shape is None:
        raise InputError(f"hf:{name} takes {main}; give their shape without the batch with input_shape=")
    inputs = {main: random_images(wish.shape, wish)}
    if config.is_encoder_decoder and vocabulary:
        inputs["decoder_input_ids"] = _random_tokens(config, vocabulary, TOKENS, wish)
    return inputs


def _random_tokens(config: Any, vocabulary: int, count: int, wish: Wish) -> Tensor:
    _check_length(config, count)
    require_input_room((wish.samples, count), torch.int64, wish.values)
    ids = torch.randint(vocabulary, (wish.samples, count))
    padding = getattr(config, "pad_token_id", None)
    if padding is None:
        return ids
    return ids.masked_fill(ids == padding, (padding + 1) % vocabulary)  # it embeds to zero, where norms are singular


def _tokens(transformers: Any, name: str, config: Any, trusted: dict[str, bool], text: str) -> Tensor:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **trusted)
    except (OSError, ValueError, KeyError, ImportError) as error:
        _refuse_own_code(name, error)
        raise InputError(
            f"text= needs a tokenizer, and hf:{name} has none here; give a directory that holds the model's tokenizer "
            "files, or their number with input_shape=, for random tokens"
        ) from error
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    if ids.numel() == 0:
        raise InputError("text= gives no tokens; write at least one word")
    _check_length(config, ids.shape[1])
    return ids.expand(BATCH_SIZE, -1).contiguous()


def _longest(config: Any) -> int | None:
    """How many positions the model has; None where it has no limit."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def _check_length(config: Any, count: int) -> None:
    longest = _longest(config)
    if longest is not None and count > longest:
        raise InputError(f"{count} tokens are more than the model's {longest} positions; give a shorter input")


def _language_inputs(config: Any, ids: Tensor) -> dict[str, Any]:
    """Without a mask: no position is padding, and a mask of ones computes the same in a larger graph."""
    if config.is_encoder_decoder:
        return {"input_ids": ids, "decoder_input_ids": ids.clone()}
    return {"input_ids": ids}
