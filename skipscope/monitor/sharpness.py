"""The sharpness of the loss, the largest eigenvalue of its Hessian, against what the optimizer's rate can bear.

Gradient descent with rate e on a quadratic loss diverges along an eigenvector whose eigenvalue is above 2 / e. The
limit of each optimizer, with its momentum m (Cohen et al. 2021, Gradient descent on neural networks typically occurs at
the edge of stability):

    gradient descent         2 / e
    with momentum            2 (1 + m) / e
    with Nesterov's          2 (1 + m) / ((1 + 2 m) e)

An optimizer that scales every weight's rate (Adam) has no limit on the Hessian itself: it is NaN then, and the
sharpness is reported alone.

The Hessian is that of the loss that the training descends, at the monitor's own batch: batch norms have the statistics
of the batch, which are differentiated too. With fixed statistics, as in evaluation mode, the loss is another function,
often ten times as sharp, to which no limit applies. Dropout is off.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from skipscope.linear import Hessian
from skipscope.monitor.objective import Objective
from skipscope.spectrum import eigs
from skipscope.trace import Trunk
from skipscope.trace.batch_statistics import norms_in_training, trains_norms
from skipscope.trace.graph_trunk import GraphTrunk
from skipscope.trace.inputs import Inputs

TOLERANCE = 0.01  # of the eigenvalue: a limit that is crossed by less is not crossed
MOST_PRODUCTS = 200
BLOCK = 1  # one vector at a time: only the first eigenvalue is wanted


Groups = list[dict[str, Any]]  # of an optimizer, with their rates


class Rate(NamedTuple):
    """What the optimizer steps with; limit: of the sharpness, NaN where there is none."""

    rate: float
    limit: float

    @classmethod
    def of(cls, optimizer: Optimizer | None, rate: Any, groups: Groups | None = None) -> Rate:
        """rate: of plain gradient descent, a number or a function that gives it, where there is no optimizer. groups:
        what the optimizer stepped with, where that is not what its groups are now."""
        if optimizer is None:
            value = float(rate() if callable(rate) else rate) if rate is not None else math.nan
            return cls(value, 2 / value if value > 0 else math.nan)
        groups = optimizer.param_groups if groups is None else groups
        limits = [cls._of_group(optimizer, group) for group in groups]
        return cls(float(groups[0]["lr"]), min(limits) if limits else math.nan)

    @staticmethod
    def _of_group(optimizer: Optimizer, group: dict[str, Any]) -> float:
        rate, momentum = float(group["lr"]), float(group.get("momentum", 0.0))
        if not isinstance(optimizer, SGD) or rate <= 0 or group.get("dampening", 0.0):
            return math.nan
        bearable = 2 * (1 + momentum) / rate
        return bearable / (1 + 2 * momentum) if group.get("nesterov") else bearable


def groups_of(optimizer: Optimizer) -> Groups:
    """A copy of what the optimizer steps with, without weights: a schedule that goes on does not change it."""
    copied = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    return [
        {name: value.clone() if isinstance(value, Tensor) else value for name, value in group.items()}
        for group in copied
    ]


def settings_of(groups: Groups) -> tuple[float, ...] | None:
    """What the limit depends on: rate and momentum of every group. None where a GPU holds one, which is not waited
    for."""
    found = [group.get(name, 0.0) for group in groups for name in ("lr", "momentum")]
    if any(isinstance(value, Tensor) and value.device.type != "cpu" for value in found):
        return None
    return tuple(float(value) for value in found)


class Replayed(nn.Module):
    """A traced model as a module, with batch norms as in training: it runs the graph on the weights that it finds in
    the model's places, so that no hook of the user's is called, and the model's mode does not matter."""

    def __init__(self, trunk: GraphTrunk) -> None:
        super().__init__()
        self.model, self._trunk = trunk.model, trunk
        self._in_training = norms_in_training(trunk.program)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        batch = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        return self._trunk.replay(Inputs(args, kwargs, 0, len(batch)), in_training=self._in_training)


class Sharpness(NamedTuple):
    value: float
    residual: float  # some eigenvalue lies within it of the value
    converged: bool
    loss: float  # at the monitor's batch
    as_trained: bool  # of the loss that the training descends; False with fixed statistics of batch norms


def hessian_of(trunk: Trunk, inputs: Inputs, objective: Objective) -> tuple[Hessian, bool]:
    """Of the loss at a batch, with respect to all weights that are trained; and whether the loss is the one that the
    training descends."""
    model: nn.Module = trunk.model
    as_trained = not trains_norms(model)
    if isinstance(trunk, GraphTrunk) and trunk.program.reading is None and inputs.axis == 0:
        named = type(type(model).__name__, (Replayed,), {})  # by which messages name it
        model, as_trained = named(trunk), True
    target = torch.zeros(inputs.batch)  # the objective has its own targets
    return Hessian(model, lambda output, _: objective(output), [(inputs, target)]), as_trained


def sharpness(trunk: Trunk, inputs: Inputs, objective: Objective, seed: int = 0) -> Sharpness:
    """The largest eigenvalue of that Hessian."""
    H, as_trained = hessian_of(trunk, inputs, objective)
    # Iterative also where a matrix would do: that is assembled in float64, which the graph was not traced in.
    found = eigs(H, 1, tol=TOLERANCE, max_products=MOST_PRODUCTS, block=BLOCK, seed=seed, route="iterative")
    return Sharpness(
        float(found.values[0, 0]),
        float(found.residuals[0, 0]),
        bool(found.converged[0, 0]),
        float(H.loss),
        as_trained,
    )
