"""Ranks of weight gradients against those of their two factors.

Of a linear layer y = W h the gradient is a sum over all samples and places, with the error D = dL/dy:

    dL/dW = D H^T       D: outputs x places, H: inputs x places, so rank(dL/dW) <= min(rank D, rank H)

A convolution is one as well, with the patches under its kernel as H, (Cin kh kw) x (N h w), and dL/dW as the matrix
Cout x (Cin kh kw). With groups it is a block-diagonal matrix: its singular values are those of all blocks, ranks add
up, and the bound is the sum of the blocks' bounds. Other layers have no such factors and are left out.

The factors are those of the model's own type, the rest is float64: D and H are compressed to triangles by QR, block of
samples by block, and the gradient is made of them. A singular value counts as zero up to eps of the model's type times
sigma_max and the larger of the number of samples and the rows (of the gradient: its longer side). Numerical ranks can
exceed the bound where rounding decides them.

Cost: 2 M k^2 operations per layer for k x M patches and a dense SVD of a k x k triangle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from skipscope.spectrum import condition_number
from skipscope.spectrum.assembly import triangle
from skipscope.spectrum.condition import condition_of

BLOCK = 2**23  # entries of the patches that are there at once


@dataclass(frozen=True)
class Ranked:
    """The rank and condition number of a matrix, or of a block-diagonal one."""

    condition: float
    status: str
    rank: float  # NaN after overflow
    full_rank: int
    blocks: tuple[float, ...]  # the rank of each


@dataclass(frozen=True)
class GradientRanks:
    error: Ranked
    input: Ranked
    gradient: Ranked

    @property
    def bound(self) -> float:
        return sum(
            math.nan if math.isnan(one + other) else min(one, other)
            for one, other in zip(self.error.blocks, self.input.blocks, strict=True)
        )


def gradient_ranks(module: nn.Module, entry: Tensor, error: Tensor, samples: int) -> GradientRanks | None:
    """entry: what entered the module; error: the gradient at what left it. None for modules without such factors."""
    if not has_factors(module, entry, error):
        return None
    groups = module.groups if isinstance(module, _ConvNd) else 1
    precision = torch.float64 if entry.dtype == torch.float64 else torch.float32
    inputs: list[Tensor | None] = [None] * groups
    errors: list[Tensor | None] = [None] * groups
    gradients: list[Any] = [0] * groups  # sums over the blocks of samples
    for H, D in factors(module, entry, error):
        for group, (h, d) in enumerate(zip(H.chunk(groups, 1), D.chunk(groups, 1), strict=True)):
            inputs[group], errors[group] = triangle(h, inputs[group]), triangle(d, errors[group])
            gradients[group] += d.mT @ h
    return GradientRanks(
        error=_ranked(errors, precision, samples),
        input=_ranked(inputs, precision, samples),
        gradient=_ranked(gradients, precision, 1),
    )


def has_factors(module: nn.Module, entry: Tensor, error: Tensor) -> bool:
    """Whether the module is linear in patches of its input: a linear layer or a convolution that pads as it says."""
    if isinstance(module, _ConvNd) and not isinstance(module, _ConvTransposeNd):
        return _places(module, _batched(module, entry)) == _batched(module, error).shape[2:]
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        return False
    sizes = (error.shape[-1], entry.shape[-1]) if isinstance(module, nn.Linear) else (entry.shape[-1], error.shape[-1])
    # transformers' Conv1D is a linear layer whose weight is inputs x outputs.
    linear = isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    return linear and weight.shape == sizes and entry.shape[:-1] == error.shape[:-1]


def factors(module: nn.Module, entry: Tensor, error: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of H^T and D^T in float64: places x (inputs of all groups), places x outputs."""
    if not isinstance(module, _ConvNd):
        yield entry.double().flatten(0, -2), error.double().flatten(0, -2)
        return
    entry, error = _batched(module, entry), _batched(module, error)
    patch = entry.shape[1] * math.prod(module.kernel_size) * math.prod(error.shape[2:])
    step = max(BLOCK // patch, 1)
    for x, d in zip(entry.split(step), error.split(step), strict=True):
        yield _patches(module, x.double()), d.double().movedim(1, -1).flatten(0, -2)


def _patches(module: _ConvNd, x: Tensor) -> Tensor:
    """(N places) x (Cin kh kw)."""
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    x = F.pad(x, module._reversed_padding_repeated_twice, mode=mode)
    spatial = len(module.kernel_size)
    for axis, (size, stride, gap) in enumerate(
        zip(module.kernel_size, module.stride, module.dilation, strict=True), start=2
    ):
        x = x.unfold(axis, gap * (size - 1) + 1, stride)[..., ::gap]
    return x.movedim(1, 1 + spatial).flatten(0, spatial).flatten(1)


def _places(module: _ConvNd, x: Tensor) -> tuple[int, ...]:
    """The size of what leaves a convolution that pads as it says."""
    padding = module._reversed_padding_repeated_twice[::-1]
    return tuple(
        (size + padding[2 * k] + padding[2 * k + 1] - module.dilation[k] * (module.kernel_size[k] - 1) - 1)
        // module.stride[k]
        + 1
        for k, size in enumerate(x.shape[2:])
    )


def _batched(module: _ConvNd, x: Tensor) -> Tensor:
    return x if x.dim() == len(module.kernel_size) + 2 else x[None]


def _ranked(blocks: list[Tensor | None] | list[Tensor], precision: torch.dtype, samples: int) -> Ranked:
    """blocks: each has the singular values of one block, its columns those of the block's rows."""
    there = [block for block in blocks if block is not None]
    full = sum(min(block.shape) for block in there)
    found = [condition_number(block, reduce="matrix").singular_values[0] for block in there]
    if any(not len(values) for values in found):
        return Ranked(math.nan, "overflow", math.nan, full, (math.nan,) * len(there))
    size = max(samples, *(max(block.shape) if samples == 1 else block.shape[1] for block in there))
    value, status, rank = condition_of(torch.cat(found), precision, size)
    smallest = torch.finfo(precision).eps * size * max(float(values.max()) for values in found)
    return Ranked(value, status, rank, full, tuple(float((values > smallest).sum()) for values in found))
