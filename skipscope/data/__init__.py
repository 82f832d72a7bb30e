"""Data sets by name, and what is done to them before a network sees them."""

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.data.augmentation import augmentation as augmentation
    from skipscope.data.catalogue import digits as digits
    from skipscope.data.catalogue import load as load
    from skipscope.data.catalogue import load_or_digits as load_or_digits
    from skipscope.data.dataset import Dataset as Dataset
    from skipscope.data.dataset import Images as Images
    from skipscope.data.dataset import Normalisation as Normalisation
    from skipscope.data.dataset import Split as Split
    from skipscope.data.perturbations import fgsm as fgsm
    from skipscope.data.perturbations import uniform_like as uniform_like
    from skipscope.data.specs import NotFound as NotFound
    from skipscope.data.whitening import whiten as whiten

__all__ = defer(
    __name__,
    {
        "augmentation": "augmentation",
        "catalogue": "digits load load_or_digits",
        "dataset": "Dataset Images Normalisation Split",
        "perturbations": "fgsm uniform_like",
        "specs": "NotFound",
        "whitening": "whiten",
    },
)
