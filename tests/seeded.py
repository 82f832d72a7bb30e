"""Seeded random numbers on the device that the tests run on."""

from __future__ import annotations

import torch


def generator(seed: int) -> torch.Generator:
    return torch.Generator(torch.get_default_device()).manual_seed(seed)
