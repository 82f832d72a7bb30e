"""Does a set of named tensors fit a model? The answer in words, one sentence a kind of misfit; none where it fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor, nn


def misfits(model: nn.Module, state: Mapping[str, Tensor]) -> list[str]:
    """Missing and unexpected names, and other shapes."""
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
    return [
        f"{len(names)} {kind} ({_first_few(names)})"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshaped))
        if names
    ]


def _storage(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape)


def _shape(tensor: Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "scalar"


def _first_few(names: Iterable[str], count: int = 3) -> str:
    names = list(names)
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")
