"""Data sets by name, and what is done to them before a network sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.data.augmentation import augmentation
    from skipscope.data.catalogue import load, load_or_digits
    from skipscope.data.dataset import Dataset, Images, Normalisation, Split
    from skipscope.data.digits import digits
    from skipscope.data.specs import NotFound
    from skipscope.data.whitening import whiten

__all__ = [
    "Dataset",
    "Images",
    "Normalisation",
    "NotFound",
    "Split",
    "augmentation",
    "digits",
    "load",
    "load_or_digits",
    "whiten",
]

defer(
    __name__,
    {
        "augmentation": "augmentation",
        "catalogue": "load load_or_digits",
        "dataset": "Dataset Images Normalisation Split",
        "digits": "digits",
        "specs": "NotFound",
        "whitening": "whiten",
    },
)
