"""What is measured on the twins: one dataset per network and measure, as every other command writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import skipscope.measure as measure
from skipscope.data import Dataset
from skipscope.data.perturbations import perturbed
from skipscope.demo.twins import Chain
from skipscope.measure.profile import chain_profile
from skipscope.measure.spectra import spectra_of
from skipscope.measure.verification import verification_of
from skipscope.models.resnet import ResNet
from skipscope.trace import Trunk, trace

if TYPE_CHECKING:
    import xarray

Measures = dict[str, Callable[[], "xarray.Dataset"]]  # by the name of the dataset

PERTURBED = 5  # images
CANDIDATES = 3  # images tried for each that is wanted: some are misclassified


def of_residual(model: ResNet, data: Dataset, images: Tensor, samples: int, seed: int) -> Measures:
    """images: all of them. samples: the first ones, that Jacobians are measured at."""
    trunk = _trunk(model, images)
    point = trunk.at(images[:samples])
    return {
        "profile": lambda: measure.profile(trunk, images, seed=seed),
        "spectra": lambda: measure.spectra(trunk, point, route="svd"),
        "stability": lambda: _stability(trunk, model, data, seed),
        "verification": lambda: measure.verification(trunk, point),
        "conditioning": lambda: _conditioning(model, images),
    }


def of_plain(model: ResNet, images: Tensor, samples: int, seed: int) -> Measures:
    """The same as far as it needs no skip, block by block."""
    chain = Chain(model, images[:samples])
    with torch.no_grad():
        first = model.stem(images)
    return {
        "profile": lambda: chain_profile(model.blocks, model.head, first, seed=seed).assign_coords(chain.labels()),
        "spectra": lambda: spectra_of(chain.jacobians(stages=True), route="svd").assign_coords(
            chain.labels(stages=True)
        ),
        "verification": lambda: verification_of(chain.jacobians()).assign_coords(chain.labels()),
        "conditioning": lambda: _conditioning(model, images),
    }


def law(residual: ResNet, images: Tensor, samples: int) -> xarray.Dataset:
    return measure.law(_trunk(residual, images), images[:samples])


def law_control(plain: ResNet, images: Tensor, samples: int) -> xarray.Dataset:
    """Blocks without skips: where the law predicts a plateau at 1, they have none."""
    chain = Chain(plain, images[:samples])
    return spectra_of(chain.jacobians(), route="svd").assign_coords(chain.labels())


def _conditioning(model: ResNet, images: Tensor) -> xarray.Dataset:
    return measure.conditioning(model, images).assign_attrs(units="; ".join(model.blocks))


def _trunk(model: ResNet, images: Tensor) -> Trunk:
    return trace(model, images[:2])


def _stability(trunk: Trunk, model: ResNet, data: Dataset, seed: int) -> xarray.Dataset:
    images, labels = data.test_examples(CANDIDATES * PERTURBED, seed)
    found = perturbed(model, images, labels, PERTURBED, seed)
    return measure.stability(trunk, found.images, perturbation=found.kinds).assign_attrs(found.record)
