"""One thread a process: tests run side by side. SKIPSCOPE_TEST_DEVICE=cuda runs them on a GPU."""

from __future__ import annotations

import os

import torch

torch.set_num_threads(1)
if device := os.environ.get("SKIPSCOPE_TEST_DEVICE"):
    torch.set_default_device(device)
