"""Data sets by name, and what is done to them before a network sees them."""

from __future__ import annotations

from skipscope.data.augmentation import augmentation
from skipscope.data.catalogue import load, load_or_digits
from skipscope.data.dataset import Dataset, Images, Normalisation, NotFound, Split
from skipscope.data.digits import digits
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
