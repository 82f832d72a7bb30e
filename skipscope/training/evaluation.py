"""How often a network is right."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from skipscope.data.dataset import Split
from skipscope.errors import InputError
from skipscope.training.modes import in_mode


def accuracy(model: nn.Module, split: Split, batch: int = 512) -> float:
    """The share of images whose largest output is their label, in evaluation mode."""
    if len(split) == 0 or batch < 1:
        raise InputError(f"accuracy: expected images and a batch of at least 1, got {len(split)} and {batch}")
    return int(right_answers(model, split, torch.arange(len(split), device="cpu"), batch)) / len(split)


def right_answers(model: nn.Module, split: Split, chosen: Tensor, batch: int = 512) -> Tensor:
    """How many of the chosen samples are answered with their label; a number that stays on the model's device."""
    weight = next(model.parameters())
    right = torch.zeros((), dtype=torch.int64, device=weight.device)
    with in_mode(model, training=False), torch.no_grad():
        for part in chosen.to(split.device).split(batch):
            answers = model(split.images(part).to(weight.device, weight.dtype)).argmax(1)
            right += (answers == split.labels[part].to(weight.device)).sum()
    return right
