"""Tensors that are pages of files: they take no memory until they are read, and give it back when it is needed.

A file in the form safetensors holds its tensors as they lie in memory, so that they can be mapped. What is not stored
as the model takes it (a quantised tensor of a GGUF file, experts that are fused, another floating type) is computed
once, tensor by tensor, and written to a file in the temporary folder that has no name any more: it goes when the last
tensor that shows it goes, however the process ends.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import InputError, first_line

INDEX = "model.safetensors.index.json"


def stored_tensors(files: Sequence[Path], index: Path | None = None) -> dict[str, Tensor]:
    """The tensors of safetensors files by name, mapped. index: says which are there, and in which file."""
    from safetensors import SafetensorError, safe_open

    expected = {} if index is None else _index(index)
    if absent := sorted(set(expected.values()) - {file.name for file in files}):
        raise InputError(
            f"{', '.join(absent[:3])}{', ...' if len(absent) > 3 else ''} of {index} is not there: the model has "
            f"{len(set(expected.values()))} files of weights, and {len(absent)} of them are missing; copy them there"
        )
    found: dict[str, Tensor] = {}
    for file in files:
        if expected and file.name not in expected.values():
            continue  # another form of the same weights
        try:
            with safe_open(file, framework="pt", device="cpu") as opened:
                found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise InputError(
                f"{file} cannot be read as safetensors ({first_line(error)}): it may be incomplete; copy it again"
            ) from error
    if lost := sorted(set(expected) - set(found)):
        raise InputError(f"{expected[lost[0]]} has no tensor {lost[0]}, which {index} says is there; copy it again")
    return found


def _index(path: Path) -> dict[str, str]:
    try:
        places = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in places.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}); copy it again") from error


def usual_type(tensors: Iterable[Tensor]) -> torch.dtype:
    """The floating type that most of the numbers have."""
    sizes: Counter[torch.dtype] = Counter()
    for tensor in tensors:
        if tensor.is_floating_point():
            sizes[tensor.dtype] += tensor.numel()
    return sizes.most_common(1)[0][0] if sizes else torch.float32


def in_a_file(tensor: Tensor) -> Tensor:
    """The same values as pages of a file without a name."""
    if not tensor.numel():
        return tensor.detach().clone()
    size = tensor.numel() * tensor.element_size()
    try:
        with tempfile.NamedTemporaryFile(prefix="skipscope-weights-") as file:
            if hasattr(os, "posix_fallocate"):  # else a full disk would end the process
                os.posix_fallocate(file.fileno(), 0, size)
            mapped = torch.from_file(file.name, shared=True, size=tensor.numel(), dtype=tensor.dtype)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"a weight of {size / 1e6:.0f} MB does not fit on the disk of {tempfile.gettempdir()}: weights that are "
            "not stored as the model takes them are written there; name a folder with more room in the variable TMPDIR"
        ) from error
    mapped.copy_(tensor.detach().reshape(-1))
    return mapped.reshape(tensor.shape)


class InFiles(dict[str, Tensor]):
    """Tensors by name, each written to a file when it comes. mapped: those that are pages of files already."""

    def __init__(self, mapped: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self._known = {_memory(tensor) for tensor in (mapped or {}).values()}

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        super().__setitem__(name, self.filed(tensor))

    def filed(self, tensor: Tensor) -> Tensor:
        return tensor if _memory(tensor) in self._known or tensor.is_meta else in_a_file(tensor)


def _memory(tensor: Tensor) -> Any:
    return None if tensor.is_meta else tensor.untyped_storage().data_ptr()
