"""Why Residual Alignment looks at products of Jacobians: equations 2 to 4 of its appendix, on a network.

An input x near a point x_mid of the decision boundary, where the logit is 0, has about the logit

    w^T (I + J_L) ... (I + J_1) J_0 (x - x_mid)

with all Jacobians at x_mid: I + J_i of the units (with what follows the sum, if anything does), J_0 of the stem, and w
of the head. That is Taylor's first term, and exact for networks that are linear between the two points. The paper
leaves the stem out and takes Delta to be the change of the first unit's entry; `from_first_state` does.

Only products are used, one per segment of the trunk. The boundary is found by bisection on the segment between two
inputs with logits of different signs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear import jacobian
from skipscope.trace import Trunk

MOST_HALVINGS = 200  # of a segment, at most: float64 has no more points on it
ON_BOUNDARY = 1e-12  # a logit that counts as 0


@dataclass(frozen=True, eq=False)
class LinearisedLogit:
    """Logits at inputs, and what the Jacobians at their boundary points make of them; all (B,)."""

    logit: Tensor
    linearised: Tensor  # w^T (I + J_L) ... (I + J_1) J_0 (x - x_mid)
    from_first_state: Tensor  # w^T (I + J_L) ... (I + J_1) (h_1(x) - h_1(x_mid))
    at_boundary: Tensor  # the logit at x_mid
    distance: Tensor  # |x - x_mid|

    @property
    def relative_error(self) -> Tensor:
        return ((self.linearised - self.logit) / self.logit).abs()

    @property
    def relative_error_from_first_state(self) -> Tensor:
        return ((self.from_first_state - self.logit) / self.logit).abs()

    def __str__(self) -> str:
        errors, first = self.relative_error, self.relative_error_from_first_state
        return "\n".join(
            [
                f"{len(self.logit)} inputs at distances {float(self.distance.min()):.3g} to "
                f"{float(self.distance.max()):.3g} from the boundary, where logits are at most "
                f"{float(self.at_boundary.abs().max()):.1e}",
                f"  relative error of the linearised logit: median {float(errors.median()):.3g}, "
                f"largest {float(errors.max()):.3g}",
                f"  from the first state: median {float(first.median()):.3g}, largest {float(first.max()):.3g}",
            ]
        )


def boundary_points(logit: Callable[[Tensor], Tensor], x: Tensor, other: Tensor) -> Tensor:
    """Where the logit is 0 between inputs x and `other`, sample by sample; float64, to 1e-12 in the logit.

    logit: from inputs (B, ...) to (B,), with different signs at the two ends of every segment.
    """
    if x.shape != other.shape or x.dtype != torch.float64 or other.dtype != torch.float64:
        raise InputError(
            f"expected two batches of one shape in float64, got {tuple(x.shape)} in {x.dtype} and "
            f"{tuple(other.shape)} in {other.dtype}"
        )
    with torch.no_grad():
        at_x, at_other = logit(x), logit(other)
        if at_x.shape != x.shape[:1]:
            raise InputError(f"expected one logit per sample, shape {tuple(x.shape[:1])}, got {tuple(at_x.shape)}")
        same = torch.nonzero(at_x.sign() * at_other.sign() >= 0).flatten().tolist()
        if same:
            raise InputError(
                f"expected logits of different signs at the ends, got {float(at_x[same[0]]):g} and "
                f"{float(at_other[same[0]]):g} for sample {same[0]}"
            )
        shape = (-1, *[1] * (x.ndim - 1))
        low, high = torch.zeros_like(at_x), torch.ones_like(at_x)  # low: the sign of x
        for _ in range(MOST_HALVINGS):
            middle = (low + high) / 2
            values = logit(torch.lerp(x, other, middle.reshape(shape)))
            if bool(((values.abs() <= ON_BOUNDARY / 100) | (middle == low) | (middle == high)).all()):
                break
            on_side = values.sign() == at_x.sign()
            low, high = torch.where(on_side, middle, low), torch.where(on_side, high, middle)
    worst = float(values.abs().max())
    if not worst <= ON_BOUNDARY:
        raise InputError(
            f"expected a logit of at most {ON_BOUNDARY:g} on the boundary, got {worst:.1e}: it jumps there, or is too "
            "steep for float64"
        )
    return torch.lerp(x, other, middle.reshape(shape))


def linearised_logit(trunk: Trunk, x: Tensor, boundary: Tensor, weights: Tensor) -> LinearisedLogit:
    """The logit of inputs by the Jacobians at points of the boundary.

    trunk: of a network in float64 whose output is (B, classes). weights: (classes,), by which the output is multiplied:
    1 and -1 for the difference of two classes.
    """
    if x.shape != boundary.shape or x.dtype != torch.float64 or boundary.dtype != torch.float64:
        raise InputError(
            f"expected inputs and boundary points of one shape in float64, got {tuple(x.shape)} in {x.dtype} and "
            f"{tuple(boundary.shape)} in {boundary.dtype}"
        )
    stem, *rest = trunk.segments
    if not trunk.units or stem.kind != "stem":
        raise InputError("expected a trunk with a stem and units, got one without")
    there = trunk.at(x)
    logit, state = _logit(there.output, weights), there.entry(trunk.units[0])
    point = trunk.at(boundary)
    change = (state - point.entry(trunk.units[0])).movedim(trunk.units[0].batch_axis, 0).flatten(1)
    away = (x - boundary).flatten(1)
    pushed = jacobian(stem, point).matmat(away[:, :, None])[:, :, 0]  # B, n
    block = torch.stack([pushed, change], 2)
    for segment in rest:
        block = jacobian(segment, point).matmat(block)
    linearised, from_first_state = torch.einsum("c,bck->kb", weights.to(block), block)
    return LinearisedLogit(
        logit, linearised, from_first_state, _logit(point.output, weights), torch.linalg.vector_norm(away, dim=1)
    )


def _logit(output: Tensor, weights: Tensor) -> Tensor:
    if not isinstance(output, Tensor) or output.ndim != 2 or weights.shape != output.shape[1:]:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(f"expected an output (B, classes) for weights of shape {tuple(weights.shape)}, got {got}")
    return output.detach() @ weights.to(output)
