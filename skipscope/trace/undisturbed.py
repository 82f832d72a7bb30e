"""Work on a user's model and leave it as it was found: mode, weights, buffers, caches, random state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import TraceError
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
    buffers that a forward pass has written to, too; every weight and buffer is the same tensor in the same place.

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
    with torch.random.fork_rng(devices), torch.no_grad(), measuring(), stance, _kept_buffers(model), kept_places(model):
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
def kept_places(model: nn.Module) -> Iterator[None]:
    """Every weight and buffer is put back where it was.

    `torch.func.functional_call` does not do this for a module that stands at several paths (the one layer that all
    blocks of ALBERT share): it replaces the tensor once per path, each time taking what it finds for the original, and
    the substitute stays. Wrap each call where a second one follows: it finds out which weights are tied by comparing
    what is in their places.
    """
    places: list[Any] = [home for module in model.modules() for home in (module._parameters, module._buffers)]
    kept = [(home, dict(home)) for home in places if isinstance(home, dict)]  # those of a script are not replaced
    try:
        yield
    finally:
        for home, tensors in kept:
            if [*map(id, home.values())] != [*map(id, tensors.values())] or home.keys() != tensors.keys():
                home.clear()
                home.update(tensors)


@contextmanager
def _kept_buffers(model: nn.Module) -> Iterator[None]:
    """Buffers that are written to (counters, running averages) are put back, with their count of writes: a point that
    was computed before is still one of the same network."""
    kept = [
        (buffer, buffer.clone(), buffer._version)
        for module in model.modules()
        for buffer in module._buffers.values()
        if buffer is not None and not buffer.is_inference()
    ]
    try:
        yield
    finally:
        for buffer, value, version in kept:
            if buffer._version != version:
                buffer.data.copy_(value)
                torch._C._autograd._unsafe_set_version_counter((buffer,), (version,))


@contextmanager
def unconverted(model: nn.Module) -> Iterator[None]:
    """A conversion in a forward pass that changes nothing (`self.layer = self.layer.to(self.dtype)`) does nothing.

    Torch writes the result of a conversion into the weight, also where it is the weight itself. Inside `torch.func` the
    result is a wrapper that ends with the derivative, and the next use of the weight is a segmentation fault.
    """
    # There may be such a context around this one; a script converts nothing in its forward pass.
    modules = (module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule))
    changed = [module for module in modules if "_apply" not in vars(module)]
    for module in changed:
        module._apply = partial(_converted, module)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("_apply", None)


def _converted(module: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    weights = [*module.parameters(recurse), *module.buffers(recurse)]
    kinds = {(weight.dtype, weight.device) for weight in weights}
    with torch._C.DisableTorchFunction():  # what happens to weights is no step of the forward pass for those who watch
        after = [function(torch.empty(0, dtype=dtype, device=device)) for dtype, device in kinds]
        if {(tensor.dtype, tensor.device) for tensor in after} == kinds:
            return module
        if torch._C._functorch.peek_interpreter_stack() is None:
            return type(module)._apply(module, function, recurse)
    raise TraceError(
        f"the forward converts the weights of a {type(module).__name__} to another type or device, which cannot be "
        "done while a derivative is taken; convert the model before it is traced"
    )
