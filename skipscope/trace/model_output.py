"""Do two ways of computing a model agree? The model's own output, and how far another one is from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed

REPLAY_TOLERANCE = 1e-3  # of the largest entry of an output


def call_untouched(model: nn.Module, inputs: Inputs, seed: int | None = None) -> Any:
    """The model's own output in evaluation mode; nothing that it updates is kept. seed: of random numbers, if any."""
    with undisturbed(model):
        if seed is not None:
            torch.manual_seed(seed)
        own = inputs.map(Tensor.clone)  # a model may write into its input
        return model(*own.args, **own.kwargs)


def floats(output: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel()]


def relative_error(found: Any, expected: Any) -> float:
    """The largest difference over the largest entry, over all floating outputs; equal non-finite entries agree."""
    worst = 0.0
    for a, b in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        if isinstance(b, Tensor) and b.is_floating_point() and b.numel():
            finite = torch.isfinite(b)
            if a.shape != b.shape or not _same_outside(finite, a, b):
                return float("inf")
            if finite.any():
                scale = b[finite].abs().max().item() or 1.0
                worst = max(worst, (a[finite] - b[finite]).abs().max().item() / scale)
    return worst


def _same_outside(finite: Tensor, a: Tensor, b: Tensor) -> bool:
    """Are the entries that are not finite the same ones: NaN, or infinite of one sign?"""
    if not torch.equal(finite, torch.isfinite(a)):
        return False
    ours, theirs = a[~finite], b[~finite]
    return bool(((ours == theirs) | (ours.isnan() & theirs.isnan())).all())
