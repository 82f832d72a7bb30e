"""Models whose weights stay on disk: a folder of safetensors files, or a GGUF file.

The model is a plain module whose parameters are pages of files (`mapped_files`). Everything that works on a model in
memory works on it: states are computed and units are measured from pages that the system reads when they are needed and
drops when memory is short. Transformers puts the tensors in their places, with its own rules for names, prefixes, tied
weights and buffers that no file holds; what its rules compute anew (fused experts) goes to a file as it is made.

Weights of half precision are converted to float32 as they are read, and weights go to the device that the batch is on,
both in `skipscope.trace.read_weights`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.memory_limit import Memory, bytes_in, limit_while_alive
from skipscope.models.mapped_files import InFiles, usual_type
from skipscope.trace.read_weights import mark_on_disk

ONE_AT_A_TIME = "HF_DEACTIVATE_ASYNC_LOAD"  # else transformers converts many tensors ahead of their use


def on_disk(path: str | Path, *, memory: Memory | None = None, trust_remote_code: bool = False) -> nn.Module:
    """A Hugging Face model whose weights are read from disk when they are needed, for `ss.trace`.

    path: a folder made with `save_pretrained` (safetensors), OWNER/NAME in the local cache, or a .gguf file; with hf:
    before it or without. A model that was saved as one that predicts tokens has its head. memory: the most that this
    process may take for measuring as long as the model lives, such as "8GB". trust_remote_code: run the Python code
    that a folder comes with.

    Its parameters are pages of files; to change them changes nothing on disk.
    """
    from skipscope.models.huggingface import huggingface_recipe

    limit = None if memory is None else bytes_in(memory)
    name = str(path)
    if not Path(name).exists():
        name = name.removeprefix("hf:")  # as MODEL is written on the command line
    if not (Path(name).exists() or ("/" in name and not Path(name).is_absolute())):
        raise InputError(f"{name}: no such folder or file; give one made with save_pretrained, or a .gguf file")
    recipe = huggingface_recipe(name, trust_remote_code, with_head=True)
    if recipe.mapped is None:
        raise InputError(f"{name} holds no weights; give a folder with *.safetensors files, or a .gguf file")
    return within(recipe.mapped(), limit)


def within(model: nn.Module, memory: Memory | None) -> nn.Module:
    """The model with a limit for all that is measured while it lives, which has to leave room for its weights."""
    if memory is None:
        return model
    name, largest = max(((name, 4 * weight.numel()) for name, weight in model.named_parameters()), key=lambda w: w[1])
    if 2 * largest > bytes_in(memory):
        raise InputError(
            f"memory={memory!r} is too small for {type(model).__name__}: its largest weight, {name}, takes "
            f"{largest / 1e6:.0f} MB in float32; give at least {2 * largest / 1e6:.0f}MB"
        )
    limit_while_alive(model, memory)
    return model


def put_in_place(skeleton: nn.Module, stored: Mapping[str, Tensor], shown: str) -> nn.Module:
    """The model of a skeleton with mapped tensors as its weights. shown: what messages call it."""
    kind: Any = type(skeleton)
    if getattr(skeleton.config, "quantization_config", None) is not None:
        raise InputError(
            f"{shown} has quantised weights, which are no numbers that can be read one by one; give a model in "
            "float32, bfloat16 or float16, or a .gguf file"
        )
    with _kept_in_files(InFiles(stored)):
        model, report = kind.from_pretrained(
            None,
            config=skeleton.config,
            state_dict=dict(stored),
            dtype=usual_type(stored.values()),
            output_loading_info=True,
        )
    if missing := sorted(report["missing_keys"]):
        raise InputError(
            f"{shown} has no tensor for {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''} ({len(missing)} "
            f"of {len(model.state_dict())} are missing); give the files of the whole model"
        )
    mark_on_disk(model)
    return model.eval().requires_grad_(False)


@contextmanager
def _kept_in_files(files: InFiles) -> Iterator[None]:
    """What transformers makes of the tensors, other types and fused ones, goes to files as it is made."""
    from transformers import core_model_loading as loading

    put = loading.set_param_for_module

    def filed(model: Any, name: str, value: Any, *args: Any, **options: Any) -> Any:
        return put(model, name, files.filed(value) if isinstance(value, Tensor) else value, *args, **options)

    before = os.environ.get(ONE_AT_A_TIME)
    os.environ[ONE_AT_A_TIME] = "1"
    loading.set_param_for_module = filed
    try:
        with torch.no_grad():
            yield
    finally:
        loading.set_param_for_module = put
        if before is None:
            del os.environ[ONE_AT_A_TIME]
        else:
            os.environ[ONE_AT_A_TIME] = before
