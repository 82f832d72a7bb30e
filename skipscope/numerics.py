"""The numerical conditions under which everything is measured.

Fused attention kernels have no forward-mode derivative, TF32 and autocast spoil spectra, and inference mode keeps no
derivative, so they are off inside a measurement and put back afterwards. The graph of a model is exported under the
same conditions that it is run under, because the attention backend decides the strides that later `view`s see.

Here too: devices by name, and seeds for different purposes from one seed of the user's.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from skipscope.errors import InputError

AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")


def seed_of(*parts: int | str) -> int:
    """A seed for each purpose; neighbouring parts give unrelated seeds, which sums of them would not."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def usable_device(name: str) -> torch.device:
    """The device of that name; an InputError where it is unknown, not there, or holds no values."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # names that torch no longer wants are refused below
            device = torch.device(name)
            torch.empty(0, device=device)
        reason = "it holds no values" if device.type == "meta" else ""
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).split("\n")[0].split(". ")[0]
    if reason:
        raise InputError(f"--device {name} cannot be used here ({reason}); use cpu or a device that is there")
    return device


@contextmanager
def measuring() -> Iterator[None]:
    """Math attention, no TF32, no autocast, no inference mode, no fused transformer layers; restored on the way out."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with _without_tf32(), _without_autocast(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Half precision that the caller's own surroundings would put into every product."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            grad = torch.is_grad_enabled()
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(grad))
        for device in AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Torch has two ways to say it and refuses to read the one where the other was used; its own export reads the
    older, so that is used unless the user has chosen the newer. Without a GPU there is no TF32."""
    if not torch.cuda.is_available():
        yield
        return
    cudnn: Any = torch.backends.cudnn
    try:
        matmul, convolution = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    except RuntimeError:
        settings: list[Any] = [torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn]
        precisions = [setting.fp32_precision for setting in settings]
        try:
            for setting in settings:
                setting.fp32_precision = "ieee"
            yield
        finally:
            for setting, precision in zip(settings, precisions, strict=True):
                setting.fp32_precision = precision
        return
    try:
        torch.set_float32_matmul_precision("highest")
        cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        cudnn.allow_tf32 = convolution


@cache
def load_forward_mode() -> None:
    """Torch warns about its own use of torch.jit the first time that forward mode is used; not our users' business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))
        torch.func.vmap(lambda t: torch.func.jvp(torch.sin, (torch.zeros(1),), (t,))[1])(torch.ones(1, 1))
