"""Tests run side by side in several processes: one thread each, or they wait for each other."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
