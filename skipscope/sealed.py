"""Files that hold a digest of themselves, so that a bit that has flipped anywhere in them is found when they are read.

The digest is the SHA-256 of the whole file with zeros in the place of the digest. It stands in the file's own header
and not beside it: two files could not be replaced together, and a kill between them would look like damage. Files are
written whole or not at all, so what does not fit its digest was never left by a kill. A file without a digest is an
older version's or another program's; the reader learns of it, and says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

KEY = "sha256_of_this_file"
BLANK = "0" * 64
Seal = Literal["whole", "changed", "missing"]
# Text inside a JSON string has its quotes escaped, so no content but the key itself looks like this.
_PLACE = re.compile(rb'"%b": ?"([0-9a-f]{64})"' % KEY.encode())


def seal(content: bytes) -> bytes:
    """A document with `KEY: BLANK` in it, with the digest in place of the zeros."""
    found = _PLACE.search(content)
    if found is None:
        raise ValueError(f"expected a document with the entry {KEY}, which is still blank; got none")
    return content[: found.start(1)] + _digest(content, found).encode() + content[found.end(1) :]


def seal_of(content: bytes) -> Seal:
    found = _PLACE.search(content)
    if found is None:
        return "missing"
    return "whole" if found[1].decode() == _digest(content, found) else "changed"


def _digest(content: bytes, found: re.Match[bytes]) -> str:
    return hashlib.sha256(_blank(content, found)).hexdigest()


def _blank(content: bytes, found: re.Match[bytes]) -> bytes:
    return content[: found.start(1)] + BLANK.encode() + content[found.end(1) :]


@dataclass(frozen=True)
class Tensors:
    """What a safetensors file holds."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    sealed: bool  # or there was no digest to compare with


def tensor_file(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The content of a safetensors file with a digest of itself."""
    from safetensors.torch import save

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return seal(save(ready, {**(metadata or {}), KEY: BLANK}))


def require_whole(path: Path) -> bool:
    """Whether a safetensors file has a digest, which is compared; ValueError where it does not fit.

    Only the header is read where there is none: other programs' files may be large.
    """
    with path.open("rb") as file:
        start = file.read(8)
        header = start + file.read(min(int.from_bytes(start, "little"), path.stat().st_size))
        found = _PLACE.search(header)
        if found is None:
            return False
        digest = hashlib.sha256(_blank(header, found))
        while block := file.read(2**20):
            digest.update(block)
    if digest.hexdigest() != found[1].decode():
        raise ValueError("it was changed after it was written: its SHA-256 is not the one in its header")
    return True


def read_tensors(path: Path) -> Tensors:
    """ValueError or OSError says what is wrong with the file."""
    from safetensors import SafetensorError, safe_open

    sealed = require_whole(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            return Tensors(tensors, file.metadata() or {}, sealed)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
