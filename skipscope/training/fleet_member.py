"""One network of a fleet, what all of a fleet have in common, and which of them can be stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from skipscope.data.dataset import Split
from skipscope.training.hooks import At
from skipscope.training.settings import Settings
from skipscope.training.stacked_convolutions import architecture_of_convolutions, convolutions_obstacle
from skipscope.training.stacked_matrices import architecture_of_matrices, matrices_obstacle
from skipscope.training.stacked_step import COMMON

STACKED_ON = ("cpu", "cuda")
IN_STEP = ("epochs", "batch")  # settings that all of a fleet have in common, since their epochs begin and end together


@dataclass(frozen=True)
class FleetMember:
    """A network and how it is trained: what `train` is called with. The model is trained in place."""

    model: nn.Module
    split: Split
    settings: Settings
    test: Split | None = None
    hooks: Sequence[At] = field(default=())

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def fleet_obstacle(members: Sequence[FleetMember]) -> str:
    """Why these networks cannot be trained as a fleet, in words; an empty text if they can."""
    if not members:
        return "there are no members"
    first = members[0]
    for number, member in enumerate(members):
        if not any(weight.requires_grad for weight in member.model.parameters()):
            return f"network {number}, {type(member.model).__name__}, has no weight with requires_grad"
        if difference := _difference(member, first, IN_STEP):
            return f"network {number} has {difference}"
        if len(member.split) != len(first.split):
            return f"network {number} has {len(member.split)} training images, and network 0 has {len(first.split)}"
        if member.device != first.device:
            return f"network {number} is on {member.device}, and network 0 is on {first.device}"
        if member.settings.precision == "float16":
            return f"network {number} is trained in float16, whose gradients are scaled on the host; take 'bfloat16'"
    if len({id(member.model) for member in members}) < len(members):
        return "the same model is given more than once"
    if len({id(hook) for member in members for hook in member.hooks}) < sum(len(member.hooks) for member in members):
        return "members share a hook, which keeps the results of one network alone; give each its own"
    return ""


def stack_obstacle(members: Sequence[FleetMember]) -> str:
    """Why these networks of a fleet cannot be computed as one; an empty text if they can."""
    first = members[0]
    for number, member in enumerate(members):
        if difference := _difference(member, first, COMMON):
            return f"network {number} has {difference}"
        if member.split.shape != first.split.shape:
            return f"network {number} has images of another shape than network 0"
        if _shape(member.test) != _shape(first.test):
            return f"network {number} has other test images than network 0: {_shape(member.test)}, {_shape(first.test)}"
    if first.device.type not in STACKED_ON:
        return f"networks are stacked on {' and '.join(STACKED_ON)} devices, not on {first.device.type}"
    models = [member.model for member in members]
    if is_convolutional(first) and first.device.type != "cpu":  # grouped convolutions gain on a GPU alone
        return convolutions_obstacle(models)
    matrices = matrices_obstacle(models)
    if not matrices and first.settings.precision != "float32":
        return f"fully connected networks are not stacked in precision {first.settings.precision!r}; take 'float32'"
    return matrices


def stackable_groups(members: Sequence[FleetMember]) -> tuple[list[list[int]], list[int]]:
    """The members by their numbers: groups that can each be stacked, and those that cannot."""
    found: dict[tuple[object, ...], list[int]] = {}
    others: list[int] = []
    for number, member in enumerate(members):
        if stack_obstacle([member]):
            others.append(number)
        else:
            found.setdefault(_in_common(member), []).append(number)
    groups = list(found.values())
    lone = [group for group in groups if len(group) == 1 and (len(members) == 1 or members[0].device.type == "cuda")]
    # Nothing is gained by a stack of one, except that on a CPU stacks have threads of their own.
    return [group for group in groups if group not in lone], sorted([*others, *(group[0] for group in lone)])


def _in_common(member: FleetMember) -> tuple[object, ...]:
    """What members of one stack have in common, each of which could be stacked."""
    architecture = architecture_of_convolutions if is_convolutional(member) else architecture_of_matrices
    settings = tuple(getattr(member.settings, name) for name in COMMON)
    return settings, tuple(member.split.shape), _shape(member.test), architecture(member.model)


def is_convolutional(member: FleetMember) -> bool:
    return any(weight.dim() > 2 for weight in member.model.parameters())


def _difference(member: FleetMember, first: FleetMember, names: Sequence[str]) -> str:
    """The first of these settings in which a member differs from the first one, in words."""
    for name in names:
        own, common = getattr(member.settings, name), getattr(first.settings, name)
        if own != common:
            return f"{name} = {own!r}, and network 0 has {common!r}"
    return ""


def _shape(test: Split | None) -> tuple[int, ...]:
    return () if test is None else (len(test), *test.shape)
