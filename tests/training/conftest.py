"""What several tests of training on a GPU need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from skipscope.training.step import GraphedStep


@pytest.fixture
def without_tf32() -> Iterator[None]:
    """Convolutions on a GPU in full precision, so that they can be compared."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each step that was to be captured was."""
    made: list[bool] = []
    capture = GraphedStep._capture

    def counted(self: GraphedStep, *inputs: Tensor) -> None:
        capture(self, *inputs)
        made.append(self.captured)

    monkeypatch.setattr(GraphedStep, "_capture", counted)
    return made
