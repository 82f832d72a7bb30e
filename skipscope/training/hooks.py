"""Measuring while training: a function called after chosen epochs, and what it returned.

A checkpoint holds a result exactly: as a JSON skeleton, and its arrays apart (`pack`, `unpack`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.numerics import seed_of
from skipscope.training.history import History
from skipscope.training.surroundings import in_mode, seeded

Measure = Callable[[nn.Module, int, History], Any]  # the model in evaluation mode, epochs done, the history so far
ARRAY, DATASET = "array of the checkpoint", "xarray.Dataset"  # the only keys of the mappings that stand for these
NUMERIC = "biuf"  # kinds of NumPy's dtypes


class At:
    """`At([0, 10], measure)`: call `measure` before the training and after ten epochs.

    It returns an xarray.Dataset, or a dict of numbers, texts, arrays and further dicts; `results` holds it by epoch,
    arrays as NumPy's. A checkpoint holds the results too. With several processes each of them measures the same.
    """

    def __init__(self, epochs: Iterable[int], function: Measure, name: str = "") -> None:
        self.epochs = tuple(sorted(set(epochs)))
        if not self.epochs or self.epochs[0] < 0:
            raise InputError(f"a hook needs epochs of at least 0 (before the training), got {self.epochs}")
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.results: dict[int, Any] = {}

    def measure(self, model: nn.Module, epoch: int, history: History, device: torch.device, seed: int) -> None:
        """The random state that `function` finds depends on the run's seed and the epoch alone."""
        with in_mode(model, training=False), seeded(device, seed_of("hook", self.name, seed, epoch)):
            result = self.function(model, epoch, history)
        try:
            self.results[epoch] = canonical(result)
        except TypeError as error:
            raise InputError(
                f"the hook '{self.name}' returned {error} after {epoch} epochs; expected an xarray.Dataset or a "
                "dict of numbers, texts, arrays and further dicts"
            ) from error


def start_anew(hooks: Sequence[At], epochs: int) -> None:
    """Forget the results of former runs; refuse hooks with one name and hooks that would never be called."""
    names = [hook.name for hook in hooks]
    if len(set(names)) < len(names):
        raise InputError(f"training: two hooks have one name, got {', '.join(names)}; write At(..., name=...)")
    for hook in hooks:
        if hook.epochs[-1] > epochs:
            raise InputError(f"training: the hook '{hook.name}' waits for epoch {hook.epochs[-1]} of {epochs}")
        hook.results = {}


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
