"""What a model predicts: distances of distributions, losses, and the next tokens of a causal language model.

Logits are (B, positions, classes) or (B, classes) in the model's own type; everything is computed in float64, one
sample at a time, since a vocabulary is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.measure.chain import ChainAt
from skipscope.trace import Point, Trunk

IGNORED = -100  # a target that does not count, as in torch's cross-entropy


def divergence(reference: Tensor, other: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(other)) in nats: (B, ..., classes) -> (B, ...)."""
    rows = []
    for p, q in zip(reference, other, strict=True):
        log_p, log_q = (torch.log_softmax(logits.double(), -1) for logits in (p, q))
        # Classes of probability 0 add nothing; 0 * (-inf + inf) would be NaN.
        rows.append(torch.where(log_p > -torch.inf, log_p.exp() * (log_p - log_q), 0.0).sum(-1))
    return torch.stack(rows)


def losses(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p(target) in nats: (B, ..., classes), (B, ...) -> (B, ...); NaN where the target does not count."""
    if logits.shape[:-1] != targets.shape:
        raise InputError(f"targets: expected the shape {tuple(logits.shape[:-1])}, got {tuple(targets.shape)}")
    targets = targets.to(logits.device)
    counts = targets != IGNORED
    if (targets[counts] >= logits.shape[-1]).any() or (targets[counts] < 0).any():
        raise InputError(f"targets: expected classes from 0 to {logits.shape[-1] - 1}, or {IGNORED} for none")
    rows = []
    for row, target, counted in zip(logits, targets, counts, strict=True):
        log_p = torch.log_softmax(row.double(), -1)
        value = -log_p.gather(-1, torch.where(counted, target, 0)[..., None])[..., 0]
        rows.append(torch.where(counted, value, torch.nan))
    return torch.stack(rows)


@dataclass(frozen=True)
class Targets:
    """What should be predicted: (B,) or (B, tokens); None where it is not known. about: where it comes from."""

    values: Tensor | None
    about: str

    @classmethod
    def given(cls, targets: Any, batch: int, samples: Sequence[int]) -> Targets:
        values = torch.as_tensor(targets)
        if values.dim() not in (1, 2) or values.shape[0] != batch or values.is_floating_point():
            raise InputError(
                f"targets: expected whole numbers of shape ({batch},) or ({batch}, tokens), got {values.dtype} of "
                f"shape {tuple(values.shape)}"
            )
        return cls(values.long()[list(samples)], "given")


def next_tokens(trunk: Trunk, x: Any, chain: ChainAt, samples: Sequence[int]) -> Targets:
    """Of a causal model with token ids: at each position the id of the next one, none at the last."""
    if isinstance(x, Point):
        return Targets(None, "none: a point holds no token ids; pass the batch, or targets=")
    head = chain.chain.head
    assert head is not None
    if len(head.exit_shape) != 2:
        return Targets(None, "none: one prediction per sample; pass targets=")
    inputs = trunk.inputs(x)
    names = inputs.kwargs.get("input_ids")
    candidates = [names] if isinstance(names, Tensor) else inputs.tensors()
    ids = next((one for one in candidates if _are_ids(one, inputs.batch, *head.exit_shape)), None)
    if ids is None:
        return Targets(None, "none: the batch has no token ids; pass targets=")
    if not chain.causal():
        return Targets(None, "none: positions see later ones, so that the next token is no prediction; pass targets=")
    after = torch.full_like(ids, IGNORED, dtype=torch.int64)
    after[:, :-1] = ids[:, 1:]
    mask = inputs.kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == ids.shape:
        after[:, :-1][mask[:, 1:] == 0] = IGNORED  # padding is nothing to predict
    return Targets(after[list(samples)], "next tokens")


def _are_ids(tensor: Tensor, batch: int, tokens: int, classes: int) -> bool:
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tuple(tensor.shape) != (batch, tokens):
        return False
    return bool((tensor >= 0).all() and (tensor < classes).all())
