"""What a stored result was computed with: versions of the software, and a fingerprint of a forward pass.

A result that is kept for months may be used with another library's model of the same name, whose forward pass differs
(a position embedding, a norm). The fingerprint is a few numbers of the last state that change with it. They are the
same up to rounding on every machine; the hash is the same only where every bit is.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from typing import Any

import torch
from torch import Tensor

from skipscope.numerics import random_numbers, signs

NUMBERS = 8


def versions(model: torch.nn.Module) -> str:
    """Of skipscope, Python, PyTorch, and of the library that the model's class comes from."""
    library = type(model).__module__.partition(".")[0]
    found = {"python": platform.python_version()}
    for name in dict.fromkeys(("skipscope", "torch", library)):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return ", ".join(f"{name} {version}" for name, version in found.items())


def fingerprint(state: Tensor) -> dict[str, Any]:
    """Of the last state of one prompt: products with fixed random signs, over sqrt(n), and a hash of its bits."""
    flat = state.detach().flatten().cpu()
    directions = signs((NUMBERS, flat.numel()), random_numbers("fingerprint")).double()
    numbers = directions @ flat.double() / flat.numel() ** 0.5
    digest = hashlib.sha256(flat.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
    return {"forward_fingerprint": numbers.numpy(), "forward_sha256": digest}


def same_forward_pass(first: Any, second: Any, tol: float = 1e-3) -> bool:
    """Are the fingerprints of two stored results equal within a share of their size?"""
    a, b = (torch.as_tensor(one).double() for one in (first, second))
    return a.shape == b.shape and bool((a - b).norm() <= tol * b.norm())
