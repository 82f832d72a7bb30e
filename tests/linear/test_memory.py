"""Blocks of vectors: as many as fit, fewer when memory runs out, the same product in any case."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from skipscope.linear.memory import in_blocks

MATRIX = torch.arange(12.0).reshape(1, 3, 4)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_out_of_memory_halves_the_block_and_goes_on(limit: int) -> None:
    sizes = []

    def product(block: Tensor) -> Tensor:
        if block.shape[2] > limit:
            raise torch.OutOfMemoryError("pretended")
        sizes.append(block.shape[2])
        return MATRIX @ block

    vectors = torch.randn(1, 4, 10)
    torch.testing.assert_close(in_blocks(product, vectors, 1), MATRIX @ vectors)
    assert max(sizes) <= limit
    assert sum(sizes) == 10


def test_what_is_not_memory_is_not_swallowed() -> None:
    def product(block: Tensor) -> Tensor:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_blocks(product, torch.randn(1, 4, 10), 1)
    with pytest.raises(torch.OutOfMemoryError):
        in_blocks(_never_enough, torch.randn(1, 4, 10), 1)


def _never_enough(block: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("pretended")


def test_blocks_are_planned_from_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipscope.linear.memory.free_bytes", lambda device: 100)
    sizes = []

    def product(block: Tensor) -> Tensor:
        sizes.append(block.shape[2])
        return MATRIX @ block

    in_blocks(product, torch.randn(1, 4, 10), bytes_per_vector=10)
    assert sizes == [4, 4, 2]
