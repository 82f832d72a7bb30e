"""What surrounds a look at a network that is being trained, and is given back as it was found.

Measurements run the traced graph on the model's own weights and never its forward, so that modes, hooks, buffers and
compiled graphs are not met. They draw from generators of their own. What is left is what a user's loss or a writer's
client may draw: the random states of torch, NumPy and Python are put back too. Autocast, TF32 and inference mode are
off inside (`numerics.measuring`), and compiled functions that a loss may hold run as they are written. A loss that is a
module runs in evaluation mode on copies of its buffers (`on_copies`): a running mean does not see the monitor's batch.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy
import torch
from torch import nn

from skipscope.errors import out_of_memory
from skipscope.numerics import measuring


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    cuda = cuda_devices(model)
    python, legacy = random.getstate(), numpy.random.get_state()
    stance = torch.compiler.set_stance("force_eager")
    try:
        with torch.random.fork_rng(cuda), measuring(), stance:
            yield
    finally:
        random.setstate(python)
        numpy.random.set_state(legacy)


@contextmanager
def on_copies(module: nn.Module | None) -> Iterator[None]:
    """In evaluation mode, with copies in the places of the buffers: what a pass writes into them is forgotten."""
    parts = [] if module is None else list(module.modules())
    modes = [(part, part.training) for part in parts]
    places = [
        (part._buffers, dict(part._buffers)) for part in parts if not isinstance(part, torch.jit.ScriptModule)
    ]  # those of a script cannot be exchanged
    try:
        for part in parts:
            part.training = False
        for buffers, found in places:
            buffers.update({name: None if one is None else one.clone() for name, one in found.items()})
        yield
    finally:
        for part, mode in modes:
            part.training = mode
        for buffers, found in places:
            buffers.update(found)


def wait_for(model: nn.Module) -> None:
    """Until the GPU has done what the training gave it, which is not the monitor's time."""
    for index in cuda_devices(model):
        torch.cuda.synchronize(index)


def forget_memory_of(error: Exception) -> None:
    """Where a GPU had no room: what is kept of it for later is given back to the training."""
    if out_of_memory(error):
        with suppress(Exception):
            torch.cuda.empty_cache()


def cuda_devices(model: nn.Module) -> list[int]:
    return sorted({weight.device.index or 0 for weight in model.parameters() if weight.device.type == "cuda"})


def floating_type(model: nn.Module) -> torch.dtype | None:
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), None)


def warn(text: str) -> None:
    """Also where warnings are errors (-W error), which would end the training."""
    try:
        warnings.warn(text, stacklevel=3)
    except Warning:
        print(text, file=sys.stderr)
