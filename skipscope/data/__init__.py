"""Data sets by name, and what is done to them before a network sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.data.augmentation import augmentation
    from skipscope.data.catalogue import load, load_or_digits
    from skipscope.data.dataset import Dataset, Images, Normalisation, Split
    from skipscope.data.digits import digits
    from skipscope.data.perturbations import fgsm, uniform_like
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
    "fgsm",
    "load",
    "load_or_digits",
    "uniform_like",
    "whiten",
]

defer(
    __name__,
    {
        "augmentation": "augmentation",
        "catalogue": "load load_or_digits",
        "dataset": "Dataset Images Normalisation Split",
        "digits": "digits",
        "perturbations": "fgsm uniform_like",
        "specs": "NotFound",
        "whitening": "whiten",
    },
)
