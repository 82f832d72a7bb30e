"""The handwritten digits that scikit-learn ships: 1,797 images of 8 x 8 in ten classes, with no download.

They stand in for larger data sets where none is at hand.
"""

from __future__ import annotations

import torch
from torch import Tensor

from skipscope.data.dataset import Dataset, Images, named

CLASSES = 10
BRIGHTEST = 16  # the grey levels are counts of black pixels in 4 x 4 blocks
TEST_EVERY = 5


def digits() -> Dataset:
    """Images as float32 in [0, 1], shape N, 1, 8, 8; every fifth image of each class is a test image."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).to(torch.float32).div(BRIGHTEST).unsqueeze(1)  # N, 1, 8, 8
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    test = _test_mask(labels)
    train, held_out = Images(images[~test], labels[~test]), Images(images[test], labels[test])
    return Dataset("digits", named(range(CLASSES)), train, held_out)


def _test_mask(labels: Tensor) -> Tensor:
    """Counted, not drawn: the split is the same under every version of every random generator."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    for label in range(CLASSES):
        members = torch.nonzero(labels == label).flatten()
        mask[members[::TEST_EVERY]] = True
    return mask
