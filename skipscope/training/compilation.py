"""How networks are compiled with `torch.compile` on a GPU, and when.

Compiling takes seconds, so that only long trainings gain. Whether one is compiled follows from its settings alone: a
training that is resumed takes the way that it began. Kernels are chosen without measuring them, because the faster one
of two may be another at the next run, and sums up in another order.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

import torch

COMPILED_FROM = 4000  # steps: on an H200 eight ResNets of 56 layers gain 3 ms a step, and take 12 s to compile
COMPILED: dict[str, Any] = {"dynamic": False, "options": {"deterministic": True}}
KINDS = 1000  # of blocks in one process; torch's own limit of 8 is that of one network


@functools.cache
def compile_obstacle() -> str:
    """Why this machine cannot compile for its GPU, in words; an empty text if it can."""
    import torch._dynamo

    if not torch.cuda.is_available():
        return "torch sees no GPU"
    try:
        torch.compile(lambda x: torch.relu(x + 1), **COMPILED)(torch.zeros(8, device="cuda"))
    except Exception as error:  # a compiler or Triton that is missing or does not fit, each with its own error
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def room_for_kinds() -> AbstractContextManager[None]:
    import torch._dynamo

    return torch._dynamo.config.patch(recompile_limit=KINDS, accumulated_recompile_limit=KINDS)


def uncompiled() -> AbstractContextManager[None]:
    """What is compiled runs as it was written."""
    return torch.compiler.set_stance("force_eager")
