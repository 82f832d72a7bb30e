"""One-hot labels as Theorem 1 needs them: unit vectors, no two alike."""

from __future__ import annotations

import torch
from torch import Tensor

from skipscope.errors import InputError


def unit_labels(classes: Tensor, size: int, jitter: float = 0.1, seed: int = 0) -> Tensor:
    """One-hot columns (size, m) for classes (m,), jittered by Gaussian noise and brought back to length 1.

    Without jitter two samples of a class have the same label, and the theorem's distance rho is 0.
    """
    classes = torch.as_tensor(classes)
    if classes.ndim != 1 or classes.is_floating_point() or not classes.numel():
        raise InputError(
            f"expected classes as integers of shape (m,), got {classes.dtype} of shape {tuple(classes.shape)}"
        )
    if int(classes.min()) < 0 or int(classes.max()) >= size:
        raise InputError(f"expected classes from 0 to {size - 1}, got {int(classes.min())} to {int(classes.max())}")
    if not jitter >= 0:
        raise InputError(f"expected jitter >= 0, got {jitter}")
    generator = torch.Generator("cpu").manual_seed(seed)
    noise = torch.randn(size, len(classes), dtype=torch.float64, generator=generator, device="cpu").to(classes.device)
    Y = torch.nn.functional.one_hot(classes.long(), size).T + jitter * noise
    return Y / Y.norm(dim=0)
