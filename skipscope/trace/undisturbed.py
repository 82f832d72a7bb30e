"""Work on a user's model and leave it as it was found: mode, buffers, caches, random state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from skipscope.numerics import measuring


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module behind `torch.compile`, `DataParallel` and `DistributedDataParallel`."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients, no key-value caches, no compilation; all restored, and the random state and the
    buffers that a forward pass has written to, too.

    Modes are set by attribute: a model's own `train()` may do more (merge adapters, freeze layers).
    """
    modes = [(module, module.training) for module in model.modules()]
    configs: dict[int, Any] = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", None) is True:
            configs[id(config)] = config
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    stance = torch.compiler.set_stance("force_eager")
    with torch.random.fork_rng(devices), torch.no_grad(), measuring(), stance, _kept_buffers(model):
        try:
            for module, _ in modes:
                module.training = False
            for config in configs.values():
                config.use_cache = False
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for config in configs.values():
                config.use_cache = True


@contextmanager
def _kept_buffers(model: nn.Module) -> Iterator[None]:
    """Buffers that are replaced or written to (counters, running averages) are put back, with their count of writes: a
    point that was computed before is still one of the same network."""
    kept = [
        (module, name, buffer, buffer.clone(), buffer._version)
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and not buffer.is_inference()
    ]
    names = [(module, set(module._buffers)) for module in model.modules()]
    try:
        yield
    finally:
        for module, known in names:
            for name in set(module._buffers) - known:
                del module._buffers[name]
        for module, name, buffer, value, version in kept:
            module._buffers[name] = buffer
            if buffer._version != version:
                buffer.data.copy_(value)
                torch._C._autograd._unsafe_set_version_counter((buffer,), (version,))
