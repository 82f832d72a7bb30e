"""Perturbations of images: adversarial ones, and random ones of the same size.

The fast gradient sign method (Goodfellow, Shlens and Szegedy 2015) moves every pixel by eps uphill on the loss,

    d = eps sign(grad L(x)),   L the cross-entropy of the image's own label;

iterated (Kurakin, Goodfellow and Bengio 2017), it takes t steps of eps / t, each with a gradient of its own. Here eps
is the smallest that flips a correctly classified image: the first on a geometric grid that does, then bisection between
it and the grid point below, for every image on its own. (Rothauge, Yao, Hu and Mahoney, linearised stability, use the
method without saying which eps.)

The gradient of L is sigmoid(s) grad s with s = log sum_{j != label} exp z_j - z_label for logits z. Only its sign is
wanted, so that of grad s is taken: sigmoid(s) vanishes in float32 where the network is very sure, grad s does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.numerics import random_numbers
from skipscope.trace.undisturbed import undisturbed

LARGEST = 4.0  # images are normalised: four standard deviations
GRID = tuple(2.0 ** (-k / 2) for k in range(28, -1, -1))  # of the largest: from 2^-14 to 1 by factors of sqrt 2
MOST_BISECTIONS = 60  # where the grid's first point flips an image, the bracket begins at zero

Bound = float | Tensor  # a tensor: anything that broadcasts to the images, (C, 1, 1) for one number per channel


@dataclass(frozen=True)
class Adversarial:
    """B' images that were classified correctly, each with the smallest perturbation found that flips it.

    The model's answer at `images + perturbation`, computed just so, is not the label.
    """

    perturbation: Tensor  # B', C, H, W
    images: Tensor  # B', C, H, W
    labels: Tensor  # B'
    answers: Tensor  # B': the model's at images + perturbation
    eps: Tensor  # B' in float64, in the units of the images: between eps - gap and eps the answer flips
    gap: Tensor  # B' in float64: how far below eps the image was seen not to flip
    kept: Tensor  # B': the images' positions in the batch that was given
    misclassified: int  # images left out because they were wrong before
    not_flipped: int  # images left out because no eps of the grid flipped them
    flipped: Tensor  # B: of every image that was given, whether it is among these
    grid: tuple[float, ...]
    evaluations: int  # of the model on the batch of all correctly classified images


def fgsm(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    steps: Sequence[float] | None = None,
    iterations: int = 1,
    largest: float = LARGEST,
    clip: tuple[Bound, Bound] | None = None,
    tolerance: float = 1e-3,
) -> Adversarial:
    """The smallest eps for which `iterations` steps of the gradient's sign flip each image; the whole batch at once.

    model: gives logits (B, classes), or a container whose first float tensor they are; run in evaluation mode and left
    as it was. x: (B, C, H, W), normalised as the model takes them. labels: (B,).
    steps: the grid, rising; by default 29 values up to `largest`, each sqrt 2 times the one before.
    clip: the smallest and the largest value that a perturbed pixel may have, after every step.
    tolerance: the bisection ends when the bracket is this share of eps.

    An answer may flip and flip back between two points of the grid; a finer grid sees more.
    Cost: `iterations` gradients (one for all, if there is one iteration) and an evaluation for every eps that is tried,
    at most the grid's and about log2(0.4 / tolerance).
    """
    grid = _checked_grid(steps, largest)
    if iterations < 1 or not 0 < tolerance < 1:
        raise InputError(
            f"fgsm: expected at least 1 iteration and a tolerance between 0 and 1, got {iterations}, {tolerance}"
        )
    _check_batch(x, labels)
    x, labels = x.detach(), labels.to(x.device)
    with undisturbed(model):
        right = (_Attacked(model, x, labels, 1, None).answers(x) == labels).nonzero().flatten()
        attacked = _Attacked(model, x[right], labels[right], iterations, _checked_clip(clip, x))
        low, high = attacked.search(grid, tolerance) if len(right) else (x.new_zeros(0).double(),) * 2
        found = high.isfinite()
        # The others take part with eps 0: the batch is the one that the search has seen.
        perturbation = attacked.perturb(high.where(found, 0)) if len(right) else x[right]
        answers = attacked.answers(x[right] + perturbation) if len(right) else labels[right]
    kept = right[found]
    flipped = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    flipped[kept] = True
    return Adversarial(
        perturbation=perturbation[found],
        images=x[kept],
        labels=labels[kept],
        answers=answers[found],
        eps=high[found],
        gap=(high - low)[found],
        kept=kept,
        misclassified=len(x) - len(right),
        not_flipped=len(right) - len(kept),
        flipped=flipped,
        grid=grid,
        evaluations=attacked.evaluations,
    )


def uniform_like(perturbation: Tensor, seed: int, *, norm: str = "l2") -> Tensor:
    """Noise that is uniform in [-1, 1] per pixel, scaled to the size of each image's perturbation (B, ...).

    norm: the size, "l2" the Euclidean norm or "linf" the largest entry.
    """
    orders = {"l2": 2.0, "linf": math.inf}
    if norm not in orders:
        raise InputError(f"norm={norm!r}: expected one of {', '.join(orders)}")
    if not perturbation.is_floating_point() or perturbation.dim() < 2:
        raise InputError(
            f"expected a batch of float perturbations, got {perturbation.dtype} {tuple(perturbation.shape)}"
        )
    generator = random_numbers("perturbation", seed)
    flat = perturbation.detach().flatten(1).double()  # B, n
    noise = torch.rand(flat.shape, generator=generator, dtype=torch.float64, device="cpu").mul(2).sub(1).to(flat)
    sizes, drawn = (torch.linalg.vector_norm(t, orders[norm], dim=1, keepdim=True) for t in (flat, noise))
    return (noise * (sizes / drawn)).to(perturbation.dtype).reshape(perturbation.shape)


@dataclass(frozen=True)
class Perturbed:
    """Images, and perturbations of each of them: adversarial ones and random ones of the same norm."""

    images: Tensor
    kinds: dict[str, Tensor]
    record: dict[str, Any]  # what the search for the adversarial ones found


def perturbed(model: nn.Module, candidates: Tensor, labels: Tensor, count: int, seed: int) -> Perturbed:
    """The first `count` candidates that are classified correctly and can be flipped, or as many as there are."""
    found = fgsm(model, candidates, labels)
    if not len(found.kept):
        raise InputError(
            f"none of {len(candidates)} images is classified correctly and can be flipped; do the weights and the data "
            "belong together?"
        )
    adversarial = found.perturbation[:count]
    record = {
        "step": [float(step) for step in found.eps[:count]],
        "misclassified": found.misclassified,
        "not_flipped": found.not_flipped,
        "candidates": len(candidates),
    }
    kinds = {"adversarial": adversarial, "random": uniform_like(adversarial, seed)}
    return Perturbed(found.images[:count], kinds, record)


class _Attacked:
    """Images that are to be flipped; the model is in evaluation mode and gradients are off."""

    def __init__(
        self, model: nn.Module, x: Tensor, labels: Tensor, iterations: int, clip: tuple[Bound, Bound] | None
    ) -> None:
        self.model, self.x, self.labels, self.iterations, self.clip = model, x, labels, iterations, clip
        self.evaluations = 0
        self._first: Tensor | None = None  # the sign at x, which all eps share

    def search(self, grid: Sequence[float], tolerance: float) -> tuple[Tensor, Tensor]:
        """Per image (B,) in float64 an eps that does not flip it and one that does; infinite where none does."""
        low = torch.zeros(len(self.x), dtype=torch.float64, device=self.x.device)
        high = torch.full_like(low, math.inf)
        for eps in grid:
            if high.isfinite().all():
                break
            tried = torch.full_like(low, eps)
            flips, open_ = self.flips(tried), high.isinf()
            high = torch.where(open_ & flips, tried, high)
            low = torch.where(open_ & ~flips, tried, low)
        for _ in range(MOST_BISECTIONS):
            wide = high.isfinite() & (high - low > tolerance * high)
            if not wide.any():
                break
            middle = torch.where(wide, (low + high) / 2, low)
            flips = self.flips(middle)
            high = torch.where(wide & flips, middle, high)
            low = torch.where(wide & ~flips, middle, low)
        return low, high

    def flips(self, eps: Tensor) -> Tensor:
        return self.answers(self.x + self.perturb(eps)) != self.labels

    def perturb(self, eps: Tensor) -> Tensor:
        """eps of every image (B,) -> perturbation, what is added to the images."""
        if self._first is None:
            self._first = self.sign(self.x)
        step = (eps / self.iterations).to(self.x).reshape(-1, *[1] * (self.x.dim() - 1))
        perturbation = self._clipped(step * self._first)
        for _ in range(1, self.iterations):
            perturbation = self._clipped(perturbation + step * self.sign(self.x + perturbation))
        return perturbation

    def sign(self, images: Tensor) -> Tensor:
        """Of the gradient of the cross-entropy."""
        with torch.enable_grad():
            images = images.detach().requires_grad_()
            logits = self.logits(images)
            own = torch.nn.functional.one_hot(self.labels, logits.shape[1]).bool()
            others = logits.masked_fill(own, -math.inf).logsumexp(1)
            (gradient,) = torch.autograd.grad((others - logits[own]).sum(), images)
        return gradient.sign()

    def answers(self, images: Tensor) -> Tensor:
        return self.logits(images).argmax(1)

    def logits(self, images: Tensor) -> Tensor:
        self.evaluations += 1
        output: Any = self.model(images)
        floats = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        if not floats or floats[0].dim() != 2 or len(floats[0]) != len(images) or floats[0].shape[1] < 2:
            shape = tuple(floats[0].shape) if floats else "no float tensor"
            raise InputError(f"fgsm: expected logits of shape ({len(images)}, classes) from the model, got {shape}")
        if int(self.labels.max()) >= floats[0].shape[1]:
            raise InputError(
                f"fgsm: the label {int(self.labels.max())} is not one of the {floats[0].shape[1]} classes of the model"
            )
        return floats[0]

    def _clipped(self, perturbation: Tensor) -> Tensor:
        if self.clip is None:
            return perturbation
        return _between(self.x + perturbation, *self.clip) - self.x


def _between(images: Tensor, low: Bound, high: Bound) -> Tensor:
    low, high = (torch.as_tensor(bound, dtype=images.dtype, device=images.device) for bound in (low, high))
    return torch.minimum(torch.maximum(images, low), high)


def _checked_grid(steps: Sequence[float] | None, largest: float) -> tuple[float, ...]:
    if not (largest > 0 and math.isfinite(largest)):
        raise InputError(f"fgsm: expected a largest eps above 0, got {largest}")
    if steps is None:
        return tuple(largest * share for share in GRID)
    grid = tuple(float(eps) for eps in steps if eps <= largest)
    if not grid or not grid[0] > 0 or list(grid) != sorted(set(grid)):
        raise InputError(f"fgsm: expected steps as rising values of eps above 0 and up to {largest}, got {steps}")
    return grid


def _check_batch(x: Tensor, labels: Tensor) -> None:
    if not x.is_floating_point() or x.dim() < 2 or not len(x):
        raise InputError(f"fgsm: expected a batch of float images, got {x.dtype} {tuple(x.shape)}")
    if not torch.isfinite(x).all():
        raise InputError("fgsm: the images have NaN or infinite entries")
    if labels.shape != x.shape[:1] or labels.dtype != torch.int64 or int(labels.min()) < 0:
        raise InputError(
            f"fgsm: expected int64 labels from 0 of shape ({len(x)},), got {labels.dtype} {tuple(labels.shape)}"
        )


def _checked_clip(clip: tuple[Bound, Bound] | None, x: Tensor) -> tuple[Bound, Bound] | None:
    if clip is not None and not torch.equal(_between(x, *clip), x):
        raise InputError(
            f"fgsm: some pixels of the images, from {float(x.min()):.4g} to {float(x.max()):.4g}, are outside of "
            f"clip={clip}; the bounds are in the units of the images, which are normalised"
        )
    return clip
