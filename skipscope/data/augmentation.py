"""Random changes of a batch of training images, each image its own.

Everything is vectorised over the batch, is drawn from the generator that is passed, on the images' device, and never
waits for the device. Images are padded with the zeros of the normalised image, i.e. with the mean colour, as is common.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from skipscope.data.dataset import AS_THEY_ARE, Normalisation
from skipscope.errors import InputError

Augmentation = Callable[[Tensor, torch.Generator], Tensor]

PIXELS_PER_PADDING = 8  # of the height, one pixel of padding for each 8: 4 for 32
ROTATION = 20.0  # degrees, either way
SHEAR = 20.0
SCALE = 0.2  # 0.8 to 1.2
JITTER = 0.2
LUMA = (0.299, 0.587, 0.114)


def augmentation(name: str, normalisation: Normalisation = AS_THEY_ARE) -> Augmentation:
    """none, crop, crop-flip or paper-a (crop, flip, affine, colour jitter).

    The result takes images (B, C, H, W) and a generator on their device. normalisation: that of the images; colours are
    changed without it, in [0, 1], and are not clamped.
    """
    known: dict[str, Augmentation] = {
        "none": lambda images, generator: images,
        "crop": crop,
        "crop-flip": lambda images, generator: flip(crop(images, generator), generator),
        "paper-a": lambda images, generator: _crop_flip_affine_jitter(images, generator, normalisation),
    }
    if name not in known:
        raise InputError(f"no augmentation '{name}'; known: {', '.join(known)}")
    return known[name]


def crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Pads all sides by an eighth of the height and cuts a window of the old size anywhere."""
    batch, channels, height, width = images.shape
    device = images.device
    padding = max(1, height // PIXELS_PER_PADDING)
    padded = F.pad(images, (padding,) * 4)
    top, left = torch.randint(2 * padding + 1, (2, batch, 1), generator=generator, device=device)
    rows = (top + torch.arange(height, device=device))[:, None, :, None]  # B, 1, H, 1
    columns = (left + torch.arange(width, device=device))[:, None, None, :]  # B, 1, 1, W
    sample = torch.arange(batch, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[None, :, None, None]
    return padded[sample, channel, rows, columns]


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Left and right exchanged in every second image, on average."""
    chosen = torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
    return torch.where(chosen, images.flip(-1), images)


def affine(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotation, shear along x and scaling about the centre; bilinear, zeros outside."""
    batch, _, height, width = images.shape
    angle, shear, scale = _uniform(3, images, generator).view(3, batch)  # in [-1, 1)
    angle, shear = angle * math.radians(ROTATION), torch.tan(shear * math.radians(SHEAR))
    scale = 1 + SCALE * scale
    cos, sin = torch.cos(angle), torch.sin(angle)
    # Output pixel (x, y) is read at (rotation) (shear) (x, y) / scale, in pixels; the grid counts in half widths.
    aspect = height / width
    matrix = torch.stack(
        [
            torch.stack([cos, (cos * shear - sin) * aspect, torch.zeros_like(cos)], dim=1),
            torch.stack([sin / aspect, sin * shear + cos, torch.zeros_like(cos)], dim=1),
        ],
        dim=1,
    )  # B, 2, 3
    grid = F.affine_grid(matrix / scale[:, None, None], list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def jitter(images: Tensor, generator: torch.Generator) -> Tensor:
    """Brightness, then contrast, then saturation, each by a factor of 0.8 to 1.2. images: pixels in [0, 1]."""
    brightness, contrast, saturation = 1 + JITTER * _uniform(3, images, generator)
    images = images * brightness
    images = _blend(images, _grey(images).mean(dim=(1, 2, 3), keepdim=True), contrast)
    return _blend(images, _grey(images), saturation)


def _crop_flip_affine_jitter(images: Tensor, generator: torch.Generator, normalisation: Normalisation) -> Tensor:
    """After Li and Papyan, who give no strengths for the colours; ours are those of their scaling."""
    images = affine(flip(crop(images, generator), generator), generator)
    return normalisation(jitter(normalisation.undo(images), generator))


def _uniform(count: int, images: Tensor, generator: torch.Generator) -> Tensor:
    """(count, B, 1, 1, 1) in [-1, 1)."""
    shape = (count, len(images), 1, 1, 1)
    return 2 * torch.rand(shape, generator=generator, device=images.device, dtype=images.dtype) - 1


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.unbind(dim=1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return other + factor * (images - other)
