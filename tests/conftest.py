"""One thread a process: tests run side by side. SKIPSCOPE_TEST_DEVICE=cuda runs them on a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)
if device := os.environ.get("SKIPSCOPE_TEST_DEVICE"):
    torch.set_default_device(device)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test trains stays on the machine, and nothing is downloaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKIPSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SKIPSCOPE_OFFLINE", "1")
        yield
