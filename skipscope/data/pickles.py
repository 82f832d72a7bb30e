"""Reads the pickles of CIFAR's python layout without being able to run anything.

A pickle may name any function and have it called. Those files need two: numpy's array reconstruction and its dtype.
Even these are not numpy's own here but stand-ins that record their arguments, so that a forged file reaches no code but
what is on this page. Any other name is refused.

What is too deep for Python is refused before it is read (`skipscope/flat_pickles.py`).
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from skipscope.errors import InputError
from skipscope.flat_pickles import require_flat


class _Type:
    """Stands in for numpy.dtype: only unsigned bytes are known."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        text = code.decode("latin-1") if isinstance(code, bytes) else str(code)
        self.byte = text.lstrip("|<=") == "u1"

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment, which a byte has not."""


class _Array:
    """Stands in for numpy.ndarray, which is filled after it is made."""

    values: np.ndarray | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Type, bool, bytes]) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _Type) or not kind.byte:
            raise ValueError("an array of something else than unsigned bytes")
        # A copy, because bytes are read-only and torch wants to share writable memory.
        self.values = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C").copy("C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(raw: Any, kind: _Type, shape: tuple[int, ...], order: str) -> _Array:
    """What pickles of protocol 5 hold instead."""
    if not isinstance(raw, bytes | bytearray):  # a number would be a promise of so many zeros
        raise ValueError("an array without bytes")
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", bytes(raw)))
    return array


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into pickles that Python 2 can read."""
    if encoding != "latin1":
        raise ValueError(f"text in the encoding {encoding}")
    return text.encode("latin-1")


PERMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


class _RefusedError(Exception):
    """A pickle names something that is not permitted."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PERMITTED:
            raise _RefusedError(f"{module}.{name}")
        return PERMITTED[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in the file, keys as text; arrays of bytes are numpy's, texts of Python 2 are bytes."""
    try:
        raw = path.read_bytes()
        require_flat(raw)
        content = _Reader(io.BytesIO(raw), encoding="bytes").load()
    except _RefusedError as error:
        raise InputError(f"{path}: refused, it names {error} and could run code; CIFAR's own files do not") from None
    except Exception as error:
        # A damaged pickle fails in as many ways as there are instructions; nothing of ours is on that path.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{path}: cannot be read as a pickle ({reason}); cut short or another kind of file?"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a pickled dictionary, got {type(content).__name__}")
    return {_text(key): value.values if isinstance(value, _Array) else value for key, value in content.items()}


def _text(key: object) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)
