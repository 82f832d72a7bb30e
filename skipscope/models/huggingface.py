"""Hugging Face models, always offline: a saved directory, a repository in the local cache, a .gguf file, or a model
type.

A model type (`gpt2`, `llama`, ...) gives that type's default configuration with random weights; some defaults are
huge, which is why a recipe has a skeleton. Weights from a directory or a .gguf file bring their own configuration.

Where a text is the input, a model that was saved as one that predicts tokens (the next one, masked ones, or those of a
decoder behind an encoder) is loaded with its head: then predictions can be measured, and of a causal model the loss of
the next token. Otherwise it is loaded without, as transformers' `AutoModel` does, and a note says so.

A directory may come with Python code of its own. It is run only where the user says so: transformers gets a yes or no
everywhere, because it would ask at the terminal otherwise.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.library_names import unknown_name
from skipscope.models.memory import require_input_room
from skipscope.models.origin import Origin
from skipscope.models.pretrained import Pretrained, configuration_of, refuse_own_code, require_same_kind
from skipscope.models.prompts import Prompts, one_text, several_prompts
from skipscope.models.recipe import Batch, Recipe, Wish, random_images
from skipscope.models.request import there
from skipscope.wording import counted

# Heads that are loaded with a text, as descriptions call them, and the class of transformers that loads them.
NEXT, MASKED, DECODED = "with its head", "with its head for masked tokens", "with its decoder's head"
HEADS = {NEXT: "AutoModelForCausalLM", MASKED: "AutoModelForMaskedLM", DECODED: "AutoModelForSeq2SeqLM"}
ENCODER = "AutoModelForTextEncoding"

TOKENS = 16
IMAGE_SIDE = 224  # for networks whose configuration leaves the image's size open


def huggingface_recipe(
    name: str, trust_remote_code: bool = False, weights: Path | None = None, with_head: bool = False
) -> Recipe:
    """trust_remote_code: run the Python code that a directory comes with, where it has some. weights: a directory or a
    .gguf file. with_head: with the layer that predicts tokens, where the model was saved as one that has it."""
    transformers = _transformers()
    model = _named(transformers, name, trust_remote_code)
    own = None if isinstance(model, Pretrained) else model  # a type's default configuration
    if isinstance(model, Pretrained):
        description, saved, places = _described(transformers, name), model, [model]
    else:
        description, saved, places = f"Hugging Face {name} (default configuration)", None, []
    if weights is not None:
        given = Pretrained.at(str(weights), f"weights={weights}", trust_remote_code)
        if not given.has_weights:
            raise InputError(f"weights={weights}: the folder holds no weights (*.safetensors or *.bin)")
        config = given.config(transformers)
        ours = own if own is not None else model.config(transformers)
        require_same_kind(ours, config, f"hf:{name}", str(weights), sizes=own is None)
        description, saved, places = _described(transformers, name), given, [*places, given]
    else:
        config = own if own is not None else model.config(transformers)
    return _Made(transformers, name, config, trust_remote_code, saved, places, with_head).recipe(description)


def _named(transformers: Any, name: str, trust_remote_code: bool) -> Any:
    """What lies under a name, or a model type's default configuration."""
    path = Path(name)
    if there(path.is_dir) or there(path.is_file) or ("/" in name and not path.is_absolute()):
        if _hides(transformers, name) and not any(path.glob("config.json")) and not any(path.glob("*.gguf")):
            raise InputError(
                f"hf:{name}: the folder {name} in the current directory has no config.json, and hides the model type "
                "of that name; rename it, or run in another directory"
            )
        return Pretrained.at(name, f"hf:{name}", trust_remote_code)
    if name in transformers.CONFIG_MAPPING:
        return transformers.CONFIG_MAPPING[name]()
    raise unknown_name("Hugging Face", name, transformers.CONFIG_MAPPING)


def _hides(transformers: Any, name: str) -> bool:
    """Does a folder in the current directory have the name of a model type?"""
    return there(Path(name).is_dir) and name in transformers.CONFIG_MAPPING


def _described(transformers: Any, name: str) -> str:
    return f"Hugging Face {name}{f' from the folder {name}' if _hides(transformers, name) else ''}"


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


class _Made:
    """What a recipe needs, made when it is first asked for."""

    def __init__(
        self,
        transformers: Any,
        name: str,
        config: Any,
        trust_remote_code: bool,
        saved: Pretrained | None,
        tokenizers: list[Pretrained],
        with_head: bool,
    ) -> None:
        """tokenizers: where one may be found, in this order."""
        self.transformers, self.name, self.config, self.trusted = transformers, name, config, trust_remote_code
        self.saved = saved if saved is not None and saved.has_weights else None
        self.place, self.tokenizers = saved, tokenizers
        from_file = saved is not None and saved.file is not None
        wanted = with_head and self.saved is not None
        self.head = _head(transformers, config, from_file) if wanted else ""
        self.auto = getattr(transformers, HEADS[self.head] if self.head else _without_head(transformers, config))
        self.notes = _notes(transformers, name, config, without_head=wanted and not self.head)
        self.missing: list[str] = []  # weights of the trained model that its files do not have
        self.prompts = cache(self._prompts)  # asked for with and without values

    def recipe(self, description: str) -> Recipe:
        words = f"{description} {self.head}" if self.head else description
        common: dict[str, Any] = {
            "skeleton": self.untrained,
            "prompts": self.prompts,
            "origin": self.origin(),
            "notes": self.notes,
            "notes_of_built": self.notes_of_built,
        }
        if self.saved is None:
            return Recipe(words, self.untrained, self.example, **common)
        source = self.saved.file or self.saved.name
        common |= {"weights": f"weights from {source}", "random_weights": False, "mapped": self.mapped}
        return Recipe(words, self.trained, self.example, **common)

    def trained(self) -> nn.Module:
        assert self.saved is not None
        model, self.missing = self.saved.model(self.auto, self.config)
        return model

    def notes_of_built(self) -> tuple[str, ...]:
        if not self.missing:
            return ()
        names = f"{', '.join(self.missing[:3])}{', ...' if len(self.missing) > 3 else ''}"
        return (f"{counted(len(self.missing), 'weight')} not in the files, with random numbers in the model: {names}",)

    def mapped(self) -> nn.Module:
        assert self.saved is not None
        with torch.device("meta"):
            skeleton = self.untrained()
        return self.saved.mapped(self.transformers, skeleton)

    def untrained(self) -> nn.Module:
        try:
            return self.auto.from_config(self.config, trust_remote_code=self.trusted).eval()
        except ValueError as error:
            refuse_own_code(f"hf:{self.name}", error)
            raise InputError(
                f"hf:{self.name} has no single model that can be built from its configuration: {error}"
            ) from error

    def origin(self) -> Origin:
        if self.place is None:
            return Origin(configuration_of(self.config))
        return self.place.origin(self.transformers, self.config)

    def example(self, model: nn.Module, wish: Wish) -> Batch:
        if wish.text is None:
            return _example(model, self.config, wish, self.name)
        prompts = self.prompts(wish)
        _check_length(self.config, len(prompts.ids[0]))
        return _language_inputs(self.config, **prompts.inputs())

    def _prompts(self, wish: Wish) -> Prompts:
        assert wish.text is not None
        tokenizer, first = self._tokenizer()
        if isinstance(wish.text, str):
            return one_text(tokenizer, wish.text, first)
        if wish.shape is not None and len(wish.shape) != 1:
            raise InputError(f"hf:{self.name} takes tokens: input_shape= is one number, their count, got {wish.shape}")
        return several_prompts(tokenizer, wish.text, first, wish.shape[0] if wish.shape else None)

    def _tokenizer(self) -> tuple[Any, tuple[int, ...]]:
        problem, failed = f"hf:{self.name} has none here", None
        for place in self.tokenizers:
            if not place.may_have_tokenizer:
                continue
            try:
                return place.tokenizer(self.transformers)
            except Exception as error:  # readers raise many types on files that are not theirs, even Exception itself
                refuse_own_code(place.shown, error)
                failed = error
                if place.folder is not None or place.file is not None:
                    reason = (str(error).strip() or type(error).__name__).split("\n")[0]
                    problem = f"that of {place.shown} cannot be read ({reason[:160]})"
        raise InputError(
            f"text= needs a tokenizer, and {problem}; give a directory that holds the model's tokenizer files, or the "
            "number of tokens with input_shape=, for random ones"
        ) from failed


def _head(transformers: Any, config: Any, from_gguf: bool) -> str:
    """One of `HEADS`, by the class that it was saved as; empty for another head or none. A .gguf file does not say it,
    and holds decoders."""
    auto = transformers.models.auto.modeling_auto
    causal, kind = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, config.model_type
    kinds = {NEXT: causal, MASKED: auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
    classes = config.architectures or ([causal[kind]] if from_gguf and kind in causal else [])
    if getattr(config, "is_encoder_decoder", False):
        kinds = {DECODED: auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES}
    return next((head for head, names in kinds.items() if not set(classes).isdisjoint(names.values())), "")


def _without_head(transformers: Any, config: Any) -> str:
    """The class of transformers that loads a model without a head; of an encoder that was saved without the decoder of
    its type, the encoder."""
    encoder = transformers.models.auto.modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(config.model_type)
    alone = encoder in (config.architectures or ()) and encoder not in _bare(transformers)
    return ENCODER if alone else "AutoModel"


def _bare(transformers: Any) -> set[str]:
    """The names of all models without a head; some types have several."""
    names = transformers.models.auto.modeling_auto.MODEL_MAPPING_NAMES.values()
    return {one for some in names for one in ((some,) if isinstance(some, str) else some)}


def _notes(transformers: Any, name: str, config: Any, without_head: bool) -> tuple[str, ...]:
    found = []
    if _hides(transformers, name):
        found.append(
            f"hf:{name} is the folder {name} in the current directory; it hides the model type of that name, which "
            f"hf:{name} means where there is no such folder"
        )
    alone = _without_head(transformers, config) == ENCODER
    heads = [one for one in config.architectures or () if one not in _bare(transformers)]
    if heads and without_head and not alone:
        found.append(
            f"the model was saved as {', '.join(heads)} and is measured without its head; heads that "
            "predict the next token, masked ones or those of a decoder are loaded, others are not"
        )
    return tuple(found)


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


def _longest(config: Any) -> int | None:
    """How many positions the model has; None where it has no limit."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def _check_length(config: Any, count: int) -> None:
    longest = _longest(config)
    if longest is not None and count > longest:
        raise InputError(f"{count} tokens are more than the model's {longest} positions; give a shorter input")


def _language_inputs(config: Any, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Any]:
    """Without a mask where no position is padding: a mask of ones computes the same in a larger graph."""
    inputs = {"input_ids": input_ids}
    if attention_mask is not None:
        inputs["attention_mask"] = attention_mask
    if config.is_encoder_decoder:
        inputs |= {f"decoder_{key}": value.clone() for key, value in inputs.items()}
    return inputs
