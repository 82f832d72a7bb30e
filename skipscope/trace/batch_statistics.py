"""Batch norms of a traced graph as in training, with the statistics of the batch that enters them.

A graph is traced in evaluation mode, where batch norms have fixed statistics. The loss that a training descends is that
with the statistics of each batch, through which it is differentiated too; its Hessian is another one, often ten times
smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from skipscope.trace.program import Program

aten = torch.ops.aten
FIXED = aten._native_batch_norm_legit_no_training.default  # x, weight, bias, mean, variance, momentum, eps
OWN = aten._native_batch_norm_legit.no_stats  # x, weight, bias, training, momentum, eps
WITH_A_FLAG = (  # x, weight, bias, mean, variance, training, momentum, eps
    aten.native_batch_norm.default,
    aten.cudnn_batch_norm.default,
    aten.batch_norm.default,
)


def norms_in_training(program: Program) -> frozenset[fx.Node]:
    """The calls of batch norms whose statistics are those of the batch where the model is trained: all but those of
    norms that are frozen, in evaluation mode in a model that is in training mode."""
    calls = (node for node in program.nodes if _has_fixed_statistics(node))
    return frozenset(node for node in calls if not _is_frozen(program, node))


def trains_norms(model: nn.Module) -> bool:
    """Whether a model has batch norms that are not frozen."""
    return any(isinstance(module, _BatchNorm) and (module.training or not model.training) for module in model.modules())


def with_own_statistics(target: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The call of a batch norm with fixed statistics, with those of its input in their place."""
    if target is FIXED:
        return OWN, (*args[:3], True, *args[5:7])
    if target is aten.batch_norm.default:  # the only one with a single result
        return target, (*args[:3], None, None, True, *args[6:])
    return OWN, (*args[:3], True, *args[6:8])


def _has_fixed_statistics(node: fx.Node) -> bool:
    return node.target is FIXED or (node.target in WITH_A_FLAG and node.args[5] is False)


def _is_frozen(program: Program, node: fx.Node) -> bool:
    mean: Any = node.args[3]
    path, _, _ = program.weights.get(mean, "").rpartition(".")
    return program.model.training and bool(path) and not program.model.get_submodule(path).training
