"""The profile of a chain of functions that has no skips, such as a plain network's blocks.

The quantities of `profile` that need no skip, under the same names, for a look at the two side by side: state_rms,
gradient_rms, jacobian_square with its error, effective_rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from skipscope.linear import Jacobian
from skipscope.linear.layout import by_sample
from skipscope.measure.states import along_random_direction, effective_rank, mean_square, rms
from skipscope.numerics import measuring, random_numbers

if TYPE_CHECKING:
    import xarray


def states(blocks: Mapping[str, Callable[[Tensor], Tensor]], state: Tensor) -> list[Tensor]:
    """The entry of every block, then the last exit."""
    passed = [state]
    for block in blocks.values():
        passed.append(block(passed[-1]))
    return passed


def chain_profile(
    blocks: Mapping[str, Callable[[Tensor], Tensor]],
    head: Callable[[Tensor], Tensor],
    state: Tensor,
    *,
    probes: int = 8,
    seed: int = 0,
) -> xarray.Dataset:
    """Measure every block; `state` is the entry of the first, samples along axis 0; `head` makes the output.

    Gradients are those of the output along a random direction, the one that `profile` draws for the same seed.
    """
    import xarray

    generator = random_numbers("probes", seed)
    with measuring(), torch.enable_grad():
        passed = states(blocks, state.detach().requires_grad_())
        scalar = along_random_direction(state.shape[0], generator)(head(passed[-1]))
        gradients = torch.autograd.grad(scalar, passed)
    rows = []
    for index, ((name, block), entry, gradient) in enumerate(zip(blocks.items(), passed, gradients, strict=False)):
        own = random_numbers("probes", seed, index)  # as `profile` draws them for a unit
        square, error = mean_square(Jacobian(block, entry, name=name), probes, own)
        rows.append(
            {
                "state_rms": rms(by_sample(entry, 0)),
                "gradient_rms": rms(by_sample(gradient, 0)),
                "jacobian_square": square,
                "jacobian_square_error": error,
                "effective_rank": effective_rank(by_sample(entry, 0)),
            }
        )
    columns = {key: torch.stack([row[key] for row in rows]).cpu().numpy() for key in rows[0]}
    return xarray.Dataset(
        {key: (("unit", "sample") if array.ndim == 2 else ("unit",), array) for key, array in columns.items()},
        coords={"unit": list(blocks)},
        attrs={"measure": "profile", "mode": "eval", "probes": probes, "seed": seed},
    )
