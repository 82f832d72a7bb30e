"""Blocks of vectors: as many as fit, fewer when memory runs out, the same product in any case."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from skipscope.linear import memory
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
    monkeypatch.setattr("skipscope.linear.memory.ALWAYS_FITS", {"cpu": 0, "cuda": 0})
    sizes = []

    def product(block: Tensor) -> Tensor:
        sizes.append(block.shape[2])
        return MATRIX @ block

    in_blocks(product, torch.randn(1, 4, 10), bytes_per_vector=10)
    assert sizes == [4, 4, 2]


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/meminfo": {"MemTotal:": 4000, "MemAvailable:": 3000},
        "/sys/fs/cgroup/memory.max": {"": 2_000_000},
        "/sys/fs/cgroup/memory.current": {"": 1_500_000},
        "/sys/fs/cgroup/memory.stat": {"anon": 1, "inactive_file": 400_000},
    }
    monkeypatch.setattr(memory, "_numbers", lambda path: files.get(path, {}))
    assert memory.known_free_bytes(torch.device("cpu")) == 900_000
    files["/sys/fs/cgroup/memory.max"] = {}  # "max": no limit
    assert memory.known_free_bytes(torch.device("cpu")) == 3000 * 1024


def test_files_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("123\n")
    (tmp_path / "several").write_text("MemTotal: 10 kB\nodd\nlimit max\nanon 7\n")
    assert memory._numbers(str(tmp_path / "one")) == {"": 123}
    assert memory._numbers(str(tmp_path / "several")) == {"MemTotal:": 10, "anon": 7}
    assert memory._numbers(str(tmp_path / "none")) == {}
