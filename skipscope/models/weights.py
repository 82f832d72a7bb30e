"""Weights from a file into a model, without ever running code that the file may hold.

Checkpoints differ in how they wrap the weights: under a key of a training state, and with the prefixes that
`DataParallel` (`module.`), `torch.compile` (`_orig_mod.`) and training frameworks (`model.`) put before names.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError

WRAPPERS = ("state_dict", "model_state_dict", "model")
PREFIXES = ("module.", "_orig_mod.", "model.")
CONVERT = "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"


def require_file(path: Path) -> None:
    """Asked before the model is built, which may take long."""
    if not path.is_file():
        raise InputError(f"no weights file {path}; give a .safetensors file or a torch.save of model.state_dict()")


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the tensors of `path` into `model`; every tensor must be there, be expected, and have its shape."""
    state = _unprefixed(_unwrapped(_read(path), path), model)
    _check(model, state, path)
    model.load_state_dict(state, strict=False)


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f" ({found.group(1)})" if found else ""
        raise InputError(
            f"{path} was not loaded: it is not a plain file of tensors and could run code{what}; "
            f"where you trust it, load it yourself and save its weights with {CONVERT}"
        ) from error
    except Exception as error:
        # Readers raise many types on a file that is cut short or of another kind.
        raise InputError(
            f"{path} cannot be read as weights ({type(error).__name__}: {_first_sentence(error)}); "
            f"save them with {CONVERT}"
        ) from error


def _unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    while isinstance(content, Mapping) and not any(isinstance(value, Tensor) for value in content.values()):
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


def _check(model: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    own = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    # Tied weights are stored once, and old checkpoints lack the step counter of a batch norm.
    given = {_storage(own[key]) for key in state if key in own}
    missing = [
        key
        for key, value in own.items()
        if key not in state and _storage(value) not in given and not key.endswith("num_batches_tracked")
    ]
    unexpected = [key for key in state if key not in own]
    misshaped = [
        f"{key} {_shape(state[key])} in the file, {_shape(value)} in the model"
        for key, value in own.items()
        if key in state and state[key].shape != value.shape
    ]
    problems = [
        f"{len(names)} {kind} ({_first_few(names)})"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshaped))
        if names
    ]
    if problems:
        raise InputError(
            f"{path} does not fit {type(model).__name__}: {'; '.join(problems)}. "
            "Name a model built as the trained one was, for example with a function: file.py:factory"
        )


def _storage(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape)


def _shape(tensor: Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "scalar"


def _first_few(names: Iterable[str], count: int = 3) -> str:
    names = list(names)
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")


def _first_sentence(error: Exception) -> str:
    return str(error).split("\n")[0][:160] or "empty"
