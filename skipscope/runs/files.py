"""Files that are there whole or not at all, what goes into them, and where they are kept between runs.

A cache keeps things that are costly to make and determined by what they are made from. The key is a hash of everything
that is known to determine the thing, so nothing has to be invalidated by hand: delete the folder whenever you like.
What a key cannot see is code that changes between releases and makes the same settings mean something else. A file in
the cache may be anybody's: whoever reads it checks that it holds what its key says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError

if TYPE_CHECKING:
    import xarray


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


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """The whole file or none. The suffix stays: some writers choose their format by it."""
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another folder") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_dataset(path: Path) -> xarray.Dataset:
    """A dataset of a run folder, in memory."""
    import xarray

    try:
        return xarray.load_dataset(path, engine="h5netcdf")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a dataset: {str(error).splitlines()[0]}") from error


def digest(path: Path | str) -> str:
    """The SHA-256 of a file's content: what a record names an input by, and tells whether a file was changed."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


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
