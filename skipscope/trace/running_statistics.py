"""Norms whose running statistics have never seen data, and the statistics of a batch in their place.

A batch norm that was just built has mean 0 and variance 1. In evaluation mode it then normalises nothing: states grow
or vanish as if it were not there, and so do Jacobians. Training, which takes the statistics of each batch, never meets
that network. A measurement either says so (`never_seen`, which becomes a note of every trunk) or is made on a copy
whose norms have the statistics of the batch (`calibrated`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, first_line, out_of_memory
from skipscope.module_hooks import Call, following
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed

NEVER_SEEN = "batch norms have never seen data"


def never_seen(model: nn.Module) -> list[str]:
    """A note on the norms that still have mean 0 and variance 1; nothing where there is none."""
    tracking = [module for module in model.modules() if _tracks(module)]
    fresh = [module for module in tracking if _is_fresh(module)]
    if not fresh:
        return []
    return [
        f"{len(fresh)} of {len(tracking)} {NEVER_SEEN} (mean 0, variance 1) and normalise nothing: "
        "sizes of states and of Jacobians are not those that training begins with; calibrate=True of "
        "ss.trace and ss.inspect takes the statistics of the batch, on a copy"
    ]


def calibrated(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, list[str]]:
    """A copy whose norms have the statistics of the batch where they had never seen data, and a note that says so.

    The model itself, where every norm has seen data.
    """
    if not any(_is_fresh(module) for module in model.modules()):
        return model, ["calibrate: no batch norm without data was found, so nothing was changed"]
    model = copied(model)
    fresh = [module for module in model.modules() if isinstance(module, _NormBase) and _is_fresh(module)]
    try:
        take_batch_statistics(model, inputs, fresh)
    except Exception as error:  # whatever the user's forward raises; norms do where a channel has one value
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{type(model).__name__} cannot be calibrated: with batch norms as in training it does not run on this "
            f"batch of {inputs.batch}: {reason}; give more samples, or measure without calibrate"
        ) from error
    return model, [
        f"{len(fresh)} batch norms that had never seen data have the statistics of the traced batch "
        f"({inputs.batch} samples), on a copy of the model; later changes of the original's weights are not seen"
    ]


def take_batch_statistics(model: nn.Module, inputs: Inputs, norms: Iterable[_NormBase] | None = None) -> None:
    """Give norms the mean and the variance of what enters them, as one pass of training has them.

    norms: all batch norms where none are named. Those without running statistics get some. One that is called several
    times gets the mean over its calls.
    """
    if norms is None:
        norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    seen: dict[_NormBase, list[Tensor]] = {norm: [] for norm in norms}

    numbered = {str(number): norm for number, norm in enumerate(seen)}

    def record(call: Call) -> None:
        norm = numbered[call.path]
        entering = next(leaf for leaf in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Tensor))
        seen[norm].append(_statistics(norm, entering.double()).to(entering.dtype))  # 2, channels

    passed = inputs.map(torch.clone)
    with following(numbered, entered=record), undisturbed(model):
        for norm in seen:
            norm.training = True
        model(*passed.args, **passed.kwargs)
    for norm, found in seen.items():
        if found:
            norm.running_mean, norm.running_var = torch.stack(found).mean(0)
            norm.track_running_stats = True


def copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # whatever the user's own attributes raise
        if out_of_memory(error):
            raise
        raise InputError(f"{type(model).__name__} cannot be copied: {first_line(error)}") from error


def _statistics(norm: _NormBase, entering: Tensor) -> Tensor:
    """Mean and variance of every channel: over samples and places, and for an instance norm over places alone, as a
    mean over the samples."""
    channels = entering.movedim(1, 0).flatten(2) if entering.dim() > 2 else entering.T[..., None]  # C, B, places
    if isinstance(norm, _BatchNorm):
        channels = channels.flatten(1)[:, None]
    return torch.stack([channels.mean((1, 2)), channels.var(2, correction=0).mean(1)])


def _tracks(module: nn.Module) -> bool:
    """Has it running statistics with values? Norms of other libraries count too, by the names of their buffers."""
    buffers = dict(module.named_buffers(recurse=False))
    return all(name in buffers and not buffers[name].is_meta for name in ("running_mean", "running_var"))


def _is_fresh(module: nn.Module) -> bool:
    if not _tracks(module):
        return False
    mean, variance = module.get_buffer("running_mean"), module.get_buffer("running_var")
    return bool((mean == 0).all()) and bool((variance == 1).all())
