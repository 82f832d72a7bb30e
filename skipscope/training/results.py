"""What a hook returns, in a form that a checkpoint holds exactly: a JSON skeleton, and its arrays apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
from torch import Tensor

ARRAY, DATASET = "array of the checkpoint", "xarray.Dataset"  # the only keys of the mappings that stand for these
NUMERIC = "biuf"  # kinds of NumPy's dtypes


def canonical(result: Any) -> Any:
    """A copy as it would come back from a checkpoint, so that a run is the same whether it was stopped or not."""
    if result is None:
        return {}
    arrays: dict[str, numpy.ndarray] = {}
    skeleton = pack(result, arrays)
    if not isinstance(skeleton, dict):
        raise TypeError(f"a {type(result).__name__}")
    return unpack(skeleton, arrays)


def pack(content: Any, arrays: dict[str, numpy.ndarray]) -> Any:
    """What JSON takes; numerical arrays are added to `arrays` and named in their place. TypeError says what is odd."""
    if content is None or isinstance(content, (str, bool, int, float)):
        return content
    if hasattr(content, "data_vars"):  # xarray's, which is also a mapping; without an import of xarray
        return {DATASET: pack(content.to_dict(data="array"), arrays)}
    if isinstance(content, Mapping):
        if not all(isinstance(key, str) for key in content):
            raise TypeError(f"a dict with the keys {list(content)}, which are not all texts,")
        return {key: pack(value, arrays) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [pack(value, arrays) for value in content]
    if isinstance(content, Tensor):
        content = content.detach().cpu().numpy()
    if isinstance(content, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(content)
        if array.dtype.kind not in NUMERIC:
            return pack(array.tolist(), arrays)  # texts; what has no place in JSON is refused on the way
        if array.ndim == 0:
            return array.item()
        name = str(len(arrays))
        arrays[name] = array.copy(order="C")
        return {ARRAY: name}
    raise TypeError(f"a {type(content).__name__}")


def unpack(content: Any, arrays: Mapping[str, numpy.ndarray]) -> Any:
    if isinstance(content, list):
        return [unpack(value, arrays) for value in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {ARRAY}:
        return arrays[content[ARRAY]]
    if content.keys() == {DATASET}:
        import xarray

        return xarray.Dataset.from_dict(unpack(content[DATASET], arrays))
    return {key: unpack(value, arrays) for key, value in content.items()}
