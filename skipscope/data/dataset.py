"""What every data set looks like, whatever it was read from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dataset:
    """Labelled images in memory, split once and for all into training and test."""

    name: str
    classes: int
    train_images: Tensor  # N, C, H, W
    train_labels: Tensor  # N
    test_images: Tensor
    test_labels: Tensor

    def test_batch(self, size: int, seed: int = 0) -> Tensor:
        """`size` test images drawn without repetition."""
        generator = torch.Generator("cpu").manual_seed(seed)
        return self.test_images[torch.randperm(len(self.test_images), generator=generator, device="cpu")[:size]]
