"""What a user gives to the monitor, checked before the training begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from skipscope.errors import InputError, first_line
from skipscope.measure.profile import along_random_direction
from skipscope.monitor.measures import MEASURES, Look, lacking
from skipscope.monitor.objective import Objective
from skipscope.monitor.sharpness import Rate
from skipscope.numerics import random_numbers
from skipscope.trace import Trunk, trace
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import unwrapped


def traced(model: Any, x: Any) -> Trunk:
    if not isinstance(model, nn.Module):
        raise InputError(f"Monitor: expected a torch.nn.Module or a trunk as the model, got {type(model).__name__}")
    return trace(unwrapped(model), x)


def check_numbers(every: Any, budget: Any, samples: Any, seed: Any) -> None:
    if not _is_whole(every) or every < 1:
        raise InputError(f"every={every!r}: expected a whole number of steps from 1 on")
    if budget is not None and not (isinstance(budget, int | float) and 0 < budget <= 1):
        raise InputError(f"budget={budget!r}: expected a share of the time above 0 and at most 1, or None for no limit")
    if not _is_whole(samples) or samples < 1:
        raise InputError(f"samples={samples!r}: expected a whole number of samples from 1 on")
    if not _is_whole(seed):
        raise InputError(f"seed={seed!r}: expected a whole number")


def check_objects(optimizer: Any, rate: Any, out: Any, on_alarm: Any, follow: Any) -> None:
    if out is not None and not isinstance(out, str | os.PathLike):
        raise InputError(f"out={out!r}: expected the path of a run folder, or None for none")
    if on_alarm is not None and not callable(on_alarm):
        raise InputError(f"on_alarm={on_alarm!r}: expected a function of an alarm")
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise InputError(f"optimizer={optimizer!r}: expected a torch.optim.Optimizer; a number is given as rate=")
    if optimizer is not None and rate is not None:
        raise InputError("expected optimizer= or rate=, got both; the rate is that of the optimizer where there is one")
    if follow is not None and not isinstance(follow, nn.Module):
        raise InputError(f"follow={follow!r}: expected the sharded model that is trained, a torch.nn.Module")
    _check_rate(rate)


def _check_rate(rate: float | Callable[[], float] | None) -> None:
    try:
        found = Rate.of(None, rate).rate
    except Exception as error:  # whatever a user's function raises
        raise InputError(
            f"rate={rate!r}: expected the rate as a number, or a function without arguments that returns it; "
            f"{first_line(error)}"
        ) from error
    if rate is not None and not callable(rate) and not found >= 0:
        raise InputError(f"rate={rate!r}: expected a number from 0 on")


def check_batch(inputs: Inputs) -> None:
    """That no alarm will say of the states what is true of the batch. Infinite values may be those of a mask."""
    if any(bool(tensor.isnan().any()) for tensor in inputs.tensors()):
        raise InputError("Monitor: x contains NaN; pass a batch of numbers")


def trains(optimizer: Optimizer, model: nn.Module) -> bool:
    """Whether an optimizer has any of a model's weights."""
    own = {id(weight) for weight in model.parameters()}
    return any(id(weight) in own for group in optimizer.param_groups for weight in group["params"])


def wanted(measures: Sequence[str] | None) -> list[str]:
    """Names of measures, in the order of MEASURES; all of them for None."""
    if measures is None:
        return list(MEASURES)
    if isinstance(measures, str):
        raise InputError(f"measures={measures!r}: expected a list of names, such as [{measures!r}]")
    if not isinstance(measures, Sequence | set | frozenset):
        raise InputError(f"measures={measures!r}: expected a list of names, such as ['sizes']")
    unknown = [name for name in measures if not isinstance(name, str) or name not in MEASURES]
    if unknown or not measures:
        raise InputError(f"measures: expected some of {', '.join(MEASURES)}, got {unknown[0] if unknown else 'none'}")
    return [name for name in MEASURES if name in measures]


def possible(
    names: Sequence[str], trunk: Trunk, objective: Objective | None, explicit: bool
) -> tuple[list[str], dict[str, str]]:
    """Those of the measures that the model allows, and why the others are left out. explicit: they were asked for."""
    found, left_out = [], {}
    for name in names:
        reason = lacking(MEASURES[name], trunk, objective)
        if reason and explicit:
            raise InputError(f"Monitor: {name} cannot be measured: {reason}")
        if reason and MEASURES[name].needs != "streams":  # which most models do not have
            left_out[name] = reason
        if not reason:
            found.append(name)
    return found, left_out


def check_loss(look: Look) -> None:
    """That targets and loss fit the model's output; a model that cannot be run now is another matter."""
    if look.objective is None:
        return
    try:
        output = look.point.output
    except Exception:
        return  # the first look says why
    try:
        look.objective(output)
    except InputError:
        raise
    except Exception as error:  # whatever a user's function raises
        raise InputError(
            f"Monitor: the loss of the model's output at x cannot be computed: {first_line(error)}; pass targets= and "
            "loss= that fit it"
        ) from error


def why_no_gradients(look: Look) -> str:
    """In words, for a loss (or an output) without gradients at any unit."""
    try:
        scalar = look.objective or along_random_direction(look.point.batch, random_numbers("probes", look.seed))
        found = look.point.gradients(scalar)
    except Exception as error:  # of a loss that detaches its argument, or an operation without a derivative
        return first_line(error)
    if all(gradient is None for gradient in found):
        return "the loss does not depend on the states of the units"
    return "they are not finite"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
