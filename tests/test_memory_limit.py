"""Sizes as users write them, and limits that plans keep to."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skipscope as ss
from skipscope import memory_limit
from skipscope.linear import memory
from skipscope.memory_limit import bytes_in, left_of_limits, limit_while_alive, limited_memory, with_memory

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("8GB", 8 * 10**9),
        ("500MB", 500 * 10**6),
        ("1.5 GiB", 3 * 2**29),
        ("2g", 2 * 10**9),
        ("3000000", 3_000_000),
        ("1e", None),
        (2**30, 2**30),
        ("eight", None),
        ("8 GBit", None),
        ("-8GB", None),
        ("0", None),
        ("100", None),
        (0, None),
        (-5, None),
        (True, None),
        (8.5, None),
        (None, None),
        ("", None),
    ],
)
def test_sizes(written: Any, size: int | None) -> None:
    if size is not None:
        assert bytes_in(written) == size
        return
    with pytest.raises(ss.InputError, match=r"memory=.*: expected"):
        bytes_in(written)


def test_a_limit_bounds_what_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [100]
    monkeypatch.setattr(memory_limit, "_held", lambda device: held[0])
    monkeypatch.setattr(memory, "known_free_bytes", lambda device: 10**9)
    assert memory.free_bytes(CPU) == 10**9
    with limited_memory("100MB"):
        assert memory.free_bytes(CPU) == 10**8
        held[0] += 60 * 10**6
        assert memory.free_bytes(CPU) == 40 * 10**6
        with limited_memory("10MB"):
            assert memory.free_bytes(CPU) == 10**7
        with limited_memory(None):
            assert memory.free_bytes(CPU) == 40 * 10**6
        held[0] += 10**9
        assert 0 < memory.free_bytes(CPU) < 10**7  # small blocks still go through
    assert memory.free_bytes(CPU) == 10**9


def test_a_limit_lives_as_long_as_its_holder() -> None:
    model = torch.nn.Linear(2, 2)
    limit_while_alive(model, "50MB")
    assert left_of_limits(CPU) is not None
    del model
    assert left_of_limits(CPU) is None


def test_a_function_with_memory_is_limited_while_it_runs() -> None:
    @with_memory
    def measured(x: int, *, memory: memory_limit.Memory | None = None) -> int | None:
        return left_of_limits(CPU)

    left = measured(1, memory="20MB")
    assert left is not None
    assert left <= 20 * 10**6
    assert measured(1) is None
    with pytest.raises(ss.InputError, match="expected a size"):
        measured(1, memory="much")


def test_every_measurement_refuses_what_is_no_size() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    for name in ("profile", "spectra", "alignment", "conditioning", "lens", "inspect"):
        with pytest.raises(ss.InputError, match="memory='much'"):
            getattr(ss, name)(model, torch.randn(2, 3), memory="much")


def test_smaller_blocks_give_the_same_products(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, sizes = torch.randn(1, 30, 40), []

    def product(block: torch.Tensor) -> torch.Tensor:
        sizes.append(block.shape[2])
        return matrix @ block

    vectors = torch.randn(1, 40, 64)
    with limited_memory("4MB"):
        found = memory.in_blocks(product, vectors, bytes_per_vector=10**5)
    assert max(sizes) <= 16
    torch.testing.assert_close(found, matrix @ vectors)
