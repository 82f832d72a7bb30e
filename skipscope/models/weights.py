"""Weights from a file into a model, without ever running code that the file may hold.

Checkpoints differ in how they wrap the weights: under a key of a training state, and with the prefixes that
`DataParallel` (`module.`), `torch.compile` (`_orig_mod.`) and training frameworks (`model.`, `net.`) put before names.
For our own networks the names may also be those of other libraries: see `schemes`.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import SMALL_FILE, InputError, out_of_memory
from skipscope.flat_pickles import require_flat_torch_file
from skipscope.models.resnet import ResNet
from skipscope.models.schemes import misfits, translated
from skipscope.sealed import require_whole

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "module")
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.")
CONVERT = "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the tensors of `path` into `model`; every tensor must be there, be expected, and have its shape and kind."""
    state = _unprefixed(_unwrapped(_read(path), path), model)
    if isinstance(model, ResNet):
        state = translated(model, state, path)
    elif problems := misfits(model, state):
        raise InputError(
            f"{path} does not fit {type(model).__name__}: {'; '.join(problems)}. "
            "Name a model built as the trained one was, for example with a function: file.py:factory"
        )
    _check_kinds(model, state, path)
    model.load_state_dict(state, strict=False)


def _read(path: Path) -> Any:
    form = ""
    try:
        form = _format(path)
        if form == "safetensors" or (not form and path.suffix == ".safetensors"):
            from safetensors.torch import load_file

            require_whole(path)
            return load_file(path)
        require_flat_torch_file(path)
        with path.open("rb") as file:  # by its path, torch would believe its name
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not form:
            raise InputError(
                f"{path} is neither a safetensors file nor one that torch.save wrote; save the weights with {CONVERT}"
            ) from error
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f" ({found.group(1)})" if found else ""
        raise InputError(
            f"{path} was not loaded: it is not a plain file of tensors and could run code{what}; "
            f"where you trust it, load it yourself and save its weights with {CONVERT}"
        ) from error
    except Exception as error:
        # Readers raise many types on a file that is cut short or of another kind.
        if out_of_memory(error) and path.stat().st_size > SMALL_FILE:
            raise
        reason = str(error).split("\n")[0]
        raise InputError(
            f"{path} cannot be read as weights ({type(error).__name__}: {reason[:160] or 'empty'}); "
            f"save them with {CONVERT}"
        ) from error


def _format(path: Path) -> str:
    """By its first bytes, whatever the name says: "safetensors", "torch", or nothing where it is neither."""
    with path.open("rb") as file:
        head = file.read(9)
    if head[8:] == b"{" and int.from_bytes(head[:8], "little") <= path.stat().st_size - 8:
        return "safetensors"
    # A zip archive, or a pickle, as old versions of torch wrote them.
    return "torch" if head.startswith((b"PK", b"\x80")) else ""


def _unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    # A training state may hold tensors of its own, such as a count of steps, in addition to the weights.
    while isinstance(content, Mapping):
        inner = next((content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    tensors = {}
    if isinstance(content, Mapping):
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(f"{path} holds no tensors by name; save the weights with {CONVERT}")
    return tensors


def _unprefixed(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Strip a wrapper's prefix where every tensor has it and the model itself has no such child."""
    own = list(model.state_dict())
    while True:
        for prefix in PREFIXES:
            if all(key.startswith(prefix) for key in state) and not any(key.startswith(prefix) for key in own):
                state = {key.removeprefix(prefix): value for key, value in state.items()}
                break
        else:
            return state


def _check_kinds(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Other precisions are converted; what would lose more than digits is refused, and so is what has no values."""
    own = model.state_dict()
    wrong = []
    for name, tensor in state.items():
        (theirs, in_file), (ours, in_model) = _kind(tensor), _kind(own[name])
        counter = name.endswith("num_batches_tracked") and theirs == "float"  # a file may have one type for all
        if theirs != ours and not counter:
            wrong.append(f"{name} is {in_file} in the file and {in_model} in the model")
    if wrong:
        more = f", and so for {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise InputError(
            f"{path} does not fit {type(model).__name__}: {wrong[0]}{more}. "
            "Convert the weights to dense floating-point numbers first"
        )


def _kind(tensor: Tensor) -> tuple[str, str]:
    """What may be copied into what, and the name for a message."""
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_meta:
        return "meta", f"{name} without values"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "other", f"{'quantised' if tensor.is_quantized else 'sparse'} {name}"
    kind = "float" if tensor.is_floating_point() else "complex" if tensor.is_complex() else "whole"
    return kind, name
