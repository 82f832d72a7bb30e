"""The numerical conditions under which everything is measured.

Fused attention kernels have no forward-mode derivative, TF32 and autocast spoil spectra, and inference mode keeps no
derivative, so they are off inside a measurement and put back afterwards. The graph of a model is exported under the
same conditions that it is run under, because the attention backend decides the strides that later `view`s see.

Here too: devices by name, and random numbers for different purposes from one seed of the user's, which are the same on
every device.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from skipscope.errors import InputError

AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")


def seed_of(*parts: int | str) -> int:
    """A seed for each purpose; neighbouring parts give unrelated seeds, which sums of them would not."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def random_numbers(*purpose: int | str) -> torch.Generator:
    """What random vectors of one purpose are drawn from, such as ("probes", seed). On the CPU: the numbers of a seed
    are the same wherever they are used."""
    return torch.Generator("cpu").manual_seed(seed_of(*purpose))


def normal(
    shape: Sequence[int],
    numbers: torch.Generator,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Independent normal numbers of mean 0 and variance 1."""
    return torch.randn(tuple(shape), dtype=dtype, generator=numbers, device="cpu").to(device)


def signs(shape: Sequence[int], numbers: torch.Generator, dtype: torch.dtype = torch.int64) -> Tensor:
    """Independent numbers +1 and -1, each with probability 1/2, as integers."""
    return torch.randint(0, 2, tuple(shape), generator=numbers, dtype=dtype, device="cpu").mul(2).sub(1)


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
        raise InputError(f"device={name!r} cannot be used here ({reason}); use cpu or a device that is there")
    return device


@contextmanager
def measuring() -> Iterator[None]:
    """Math attention, no TF32, no autocast, no inference mode, no fused transformer layers; restored on the way out."""
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        if torch.cuda.is_available():  # without a GPU there is no TF32
            _turn_tf32_off(stack)
        if torch.is_inference_mode_enabled():
            grad = torch.is_grad_enabled()
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(grad))
        for (
            device
        ) in AUTOCAST_DEVICES:  # half precision that the caller's own surroundings would put into every product
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


def _turn_tf32_off(stack: ExitStack) -> None:
    """Torch has two ways to say it and refuses to read the one where the other was used; its own export reads the
    older, so that is used unless the user has chosen the newer."""
    cudnn: Any = torch.backends.cudnn
    try:
        matmul, convolution = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    except RuntimeError:
        settings: list[Any] = [torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn]
        for setting in settings:
            stack.callback(setattr, setting, "fp32_precision", setting.fp32_precision)
        for setting in settings:
            setting.fp32_precision = "ieee"
        return
    stack.callback(torch.set_float32_matmul_precision, matmul)
    stack.callback(setattr, cudnn, "allow_tf32", convolution)
    torch.set_float32_matmul_precision("highest")
    cudnn.allow_tf32 = False


@cache
def load_forward_mode() -> None:
    """Torch warns about its own use of torch.jit the first time that forward mode is used; not our users' business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))
        torch.func.vmap(lambda t: torch.func.jvp(torch.sin, (torch.zeros(1),), (t,))[1])(torch.ones(1, 1))
