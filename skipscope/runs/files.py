"""What goes into the files of runs, what they are named by, and where they are kept between runs.

A cache keeps things that are costly to make and determined by what they are made from. The key is a hash of everything
that is known to determine the thing, so nothing has to be invalidated by hand: delete the folder whenever you like.
What a key cannot see is code that changes between releases and makes the same settings mean something else. A file in
the cache may be anybody's: whoever reads it checks that it holds what its key says.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.runs.whole_files import reason_of


def as_json(content: Any) -> str:
    return json.dumps(plain(content), indent=2, allow_nan=False)


def plain(content: Any) -> Any:
    """As JSON takes it: tuples as lists, NumPy's and torch's numbers as Python's, what is not finite as null."""
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [plain(value) for value in content]
    if content is None or isinstance(content, (str, bool, int)):
        return content
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if hasattr(content, "tolist"):
        return plain(content.tolist())
    if isinstance(content, os.PathLike):
        return os.fspath(content)
    raise TypeError(f"{type(content).__name__} has no place in a JSON document")


def digest(path: Path | str) -> str:
    """The SHA-256 of a file's content: what a record names an input by, and tells whether a file was changed."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error


def digest_of_tensors(values: Any) -> str:
    """The SHA-256 of all tensors in a batch or a model's state: their names, kinds, shapes and values."""
    import torch
    from torch.utils import _pytree as pytree

    found = hashlib.sha256()
    for name, tensor in pytree.tree_leaves_with_path(values):
        if isinstance(tensor, torch.Tensor):
            tensor = tensor.detach().cpu().contiguous()
            found.update(repr((pytree.keystr(name), tensor.dtype, tuple(tensor.shape))).encode())
            found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        else:
            found.update(repr((pytree.keystr(name), tensor)).encode())
    return found.hexdigest()


def digest_of_object(value: Any) -> str | None:
    """The SHA-256 of an object's pickle, in which tensors stand by their values; None where it cannot be pickled."""
    import torch

    class ByValue(pickle.Pickler):
        def persistent_id(self, part: Any) -> Any:
            if isinstance(part, torch.Tensor):
                return type(part).__qualname__, part.requires_grad, digest_of_tensors(part)
            if type(part) in (set, frozenset) and all(isinstance(each, str) for each in part):
                return "set", *sorted(part)  # its own order is another one in every process
            return None

    content = io.BytesIO()
    try:
        ByValue(content, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception:  # whatever an object's own code raises
        return None
    return hashlib.sha256(content.getvalue()).hexdigest()


def cache_root() -> Path:
    """SKIPSCOPE_CACHE, or skipscope in the user's cache folder."""
    own = os.environ.get("SKIPSCOPE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skipscope"


def key_of(content: Mapping[str, Any]) -> str:
    """The same for the same content, whatever the order of its keys."""
    text = json.dumps(plain(dict(content)), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
