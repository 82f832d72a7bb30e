"""Between states, which have their samples on an axis of their own, and blocks of vectors (B, n, k)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def unflatten(block: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """(B, n, k) -> (k, *shape) with the samples on `axis` of the shape."""
    sample = [size for i, size in enumerate(shape) if i != axis]
    vectors = block.permute(2, 0, 1).reshape(block.shape[2], block.shape[0], *sample)  # k, B, ...
    return vectors.movedim(1, axis + 1).contiguous()


def flatten(vectors: Tensor, axis: int) -> Tensor:
    """(k, *shape) -> (B, n, k)."""
    moved = vectors.movedim(axis + 1, 1)  # k, B, ...
    return moved.reshape(moved.shape[0], moved.shape[1], -1).permute(1, 2, 0)


def by_sample(tensor: Tensor, axis: int) -> Tensor:
    """A state as one row for each sample: (*shape) -> (B, n), in float64."""
    return tensor.detach().movedim(axis, 0).flatten(1).double()
