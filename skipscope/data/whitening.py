"""Whitened principal components of the pixels, with one-hot labels: the data of linear residual networks.

With mean m, orthonormal principal directions P (d x pixels, descending variance) and the standard deviations s of the
training images along them, x = P (pixels - m) / s, so that (1/N) sum x x^T = I over the training images. The sign of a
direction is arbitrary, but losses that compare x with y depend on it: the entry of largest magnitude is made positive.

Cost: one eigendecomposition of pixels x pixels and, in memory, two float64 copies of the training images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from skipscope.data.dataset import AS_THEY_ARE, Dataset, Split
from skipscope.errors import InputError

SMALLEST_VARIANCE = 1e-10  # of the largest; below it a direction is rounding noise, blown up
MANY_SAMPLES_PER_PIXEL = 10  # from here on the covariance matrix is the quicker way


@dataclass(frozen=True)
class Whitened:
    """All float64 on the CPU. test_x went through the map that the training images gave."""

    x: Tensor  # N, d
    y: Tensor  # N, C: one-hot
    test_x: Tensor
    test_y: Tensor
    mean: Tensor  # pixels
    components: Tensor  # d, pixels: orthonormal rows, descending variance
    deviations: Tensor  # d
    name: str

    def __call__(self, images: Tensor) -> Tensor:
        """(k, C, H, W) with pixels in [0, 1], not normalised, to (k, d)."""
        pixels = images.detach().cpu().double().flatten(1)
        return (pixels - self.mean) @ self.components.T / self.deviations


def whiten(data: Dataset, components: int) -> Whitened:
    """The first `components` whitened principal components of the raw pixels; the set's normalisation is left out."""
    from sklearn.decomposition import PCA

    pixels = _pixels(data.train)  # N, pixels
    most = min(pixels.shape)
    if not 1 <= components <= most:
        raise InputError(f"components: expected 1 to {most} for {data.name}, got {components}")
    solver = "covariance_eigh" if pixels.shape[0] >= MANY_SAMPLES_PER_PIXEL * pixels.shape[1] else "full"
    found = PCA(components, svd_solver=solver).fit(pixels)
    variances = found.explained_variance_
    useful = int((variances > SMALLEST_VARIANCE * variances[0]).sum())
    if useful < components:
        raise InputError(f"components: the images of {data.name} vary in {useful} directions only, got {components}")
    largest = np.abs(found.components_).argmax(axis=1, keepdims=True)
    directions = found.components_ * np.sign(np.take_along_axis(found.components_, largest, axis=1))
    pixels -= found.mean_
    scores = pixels @ directions.T  # N, d
    # The deviations of these very scores, with 1/N: scikit-learn's are from the covariance with 1/(N - 1).
    deviations = np.sqrt(np.mean(scores**2, axis=0))
    test_scores = (_pixels(data.test) - found.mean_) @ directions.T
    return Whitened(
        x=torch.from_numpy(scores / deviations),
        y=_one_hot(data.train, data.classes),
        test_x=torch.from_numpy(test_scores / deviations),
        test_y=_one_hot(data.test, data.classes),
        mean=torch.from_numpy(found.mean_),
        components=torch.from_numpy(directions),
        deviations=torch.from_numpy(deviations),
        name=f"{data.name}, {components} whitened components",
    )


def _pixels(split: Split) -> np.ndarray:
    return split.with_normalisation(AS_THEY_ARE).images().cpu().double().flatten(1).numpy()


def _one_hot(split: Split, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(split.labels.cpu(), classes).double()
