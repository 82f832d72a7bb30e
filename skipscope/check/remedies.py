"""Remedies, each tried on a copy of the model before it is named: what the signals become, and what is still broken.

Which ones are tried depends on the model: factors on branches only where there are residual units, skips only where a
trace found none, normalisation only where there is none. They are applied as a user would: new initial weights to
linear layers and convolutions (biases zero), a factor to the last weights of every branch, a norm to what leaves a
layer, and a skip around every layer that keeps the shape of what enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized

from skipscope.check.rules import broken, rules_for
from skipscope.check.signals import Measured, measured
from skipscope.errors import SkipscopeError
from skipscope.linear.memory import out_of_memory
from skipscope.measure.layers import OUTPUT
from skipscope.numerics import seed_of
from skipscope.trace.running_statistics import copied
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray

NOT_FINITE = "not finite"
SMALL_FACTOR = 0.1  # on branches
LAST_LAYER_FACTOR = 0.01

Apply = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Trial:
    """A remedy, what a copy of the model measures with it, and the names of the rules that are broken there."""

    remedy: str
    signals: dict[str, float]
    broken: tuple[str, ...]

    def helps(self, finding: str, before: tuple[str, ...]) -> bool:
        """Whether it mends what was found and breaks nothing else. before: what was broken without it."""
        return finding not in self.broken and set(self.broken) <= set(before)

    def room(self, optimiser: str) -> float:
        """Of the signal that is nearest to its threshold."""
        return min(rule.room(self.signals[rule.signal]) for rule in rules_for(optimiser))


def broken_in(found: Measured, optimiser: str) -> tuple[str, ...]:
    if found.not_finite or found.gradient_not_finite:
        return (NOT_FINITE,)
    return broken(found.signals, optimiser)


def trials(
    model: nn.Module,
    x: Any,
    seed: int,
    optimiser: str,
    found: Measured,
    units: xarray.Dataset | None,
    without_units: bool,
) -> tuple[tuple[Trial, ...], list[str]]:
    """All that can be tried, those that leave the least broken first, and of these the one that is farthest from all
    thresholds; and notes on those that cannot.

    units: None also where they were not measured. without_units: a trace found that there are none.
    """
    model = unwrapped(model)
    tried = []
    failed: dict[str, list[str]] = {}  # remedies by the reason
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    for remedy, apply in _remedies(model, optimiser, found, units, without_units):
        try:
            changed = copied(model)
            with torch.random.fork_rng(devices), torch.no_grad():
                torch.manual_seed(seed_of("remedies", seed))
                apply(changed)
            after = measured(changed, x, seed)
        except Exception as error:
            failed.setdefault(why_not(error), []).append(remedy)
        else:
            tried.append(Trial(remedy, after.signals, broken_in(after, optimiser)))
    if not tried and len(failed) == 1:
        return (), [f"No remedies were tried: {reason}." for reason in failed]
    notes = [f"Not tried: {', '.join(remedies)}: {reason}." for reason, remedies in failed.items()]
    order = sorted(tried, key=lambda trial: (NOT_FINITE in trial.broken, len(trial.broken), -trial.room(optimiser)))
    return tuple(order), notes


def why_not(error: Exception) -> str:
    """Why something could not be measured on a copy; an error that is a bug of skipscope is raised."""
    if isinstance(error, SkipscopeError):
        return str(error)
    if out_of_memory(error):
        return "there is not enough memory for a copy of the model and its states"
    raise error


def _remedies(
    model: nn.Module, optimiser: str, found: Measured, units: xarray.Dataset | None, without_units: bool
) -> Iterator[tuple[str, Apply]]:
    relu, linear = math.sqrt(2), 1.0  # gains that keep the variance
    if next(_layers(model), None) is not None:
        yield "He's initial weights", lambda m: _drawn(m, lambda w: _normal(w, relu))
        yield "initial weights of variance 1 / fan in", lambda m: _drawn(m, lambda w: _normal(w, linear))
        yield "orthogonal weights times sqrt(2)", lambda m: _drawn(m, lambda w: nn.init.orthogonal_(w, relu))
        yield "orthogonal weights", lambda m: _drawn(m, lambda w: nn.init.orthogonal_(w, linear))
    last = _last_layer(found)
    if not any("norm" in type(module).__name__.lower() for module in model.modules()):
        yield "normalisation after every layer but the last", lambda m: _after_layers(m, _normalised, last)
    if without_units:
        yield "skips around layers", lambda m: _after_layers(m, _skip(1.0), last)
        yield (
            f"skips around layers, the layers times {SMALL_FACTOR}",
            lambda m: _after_layers(m, _skip(SMALL_FACTOR), last),
        )
    if units is not None and (ends := branch_ends(units)):
        for factor in dict.fromkeys((SMALL_FACTOR, 1 / units.sizes["unit"])):
            yield f"branches times {factor:.2g}", lambda m, factor=factor: _times(m, ends, factor)  # type: ignore[misc]
        yield "branches that start at zero", lambda m: _times(m, ends, 0.0)
    if last and any(rule.signal == "loss" and rule.broken(found.signals) for rule in rules_for(optimiser)):
        yield f"the last layer times {LAST_LAYER_FACTOR}", lambda m: _times(m, _own(m, last), LAST_LAYER_FACTOR)


def branch_ends(units: xarray.Dataset) -> list[str]:
    """Names of weights."""
    return sorted({name for names in units["branch_end"].values for name in names.split(",") if name})


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear | _ConvNd]]:
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear | _ConvNd) and not is_parametrized(module) and "weight" in module._parameters:
            yield path, module


def _drawn(model: nn.Module, draw: Callable[[Tensor], Any]) -> None:
    for _, layer in _layers(model):
        if layer.weight.numel():
            # Not in half precision, which has no QR decomposition on the CPU.
            drawn = torch.empty_like(layer.weight, dtype=torch.promote_types(layer.weight.dtype, torch.float32))
            draw(drawn)
            layer.weight.copy_(drawn)
        if layer.bias is not None:
            layer.bias.zero_()


def _normal(weight: Tensor, gain: float) -> Tensor:
    return nn.init.normal_(weight, std=gain / math.sqrt(max(1, weight[0].numel())))


def _last_layer(found: Measured) -> str:
    """The path of the layer that gives the output; empty where none does, or where it is called several times."""
    last = str(found.layers["layer"].values[-1])
    return "" if last == OUTPUT or "#" in last else last


def _own(model: nn.Module, path: str) -> list[str]:
    return [f"{path}.{name}" for name, _ in model.get_submodule(path).named_parameters(recurse=False)]


def _times(model: nn.Module, names: list[str], factor: float) -> None:
    """Tied weights have several names, and are multiplied once."""
    weights = dict(model.named_parameters(remove_duplicate=False))
    for weight in {id(weights[name]): weights[name] for name in names}.values():
        weight.mul_(factor)


def _after_layers(model: nn.Module, change: Callable[[nn.Module, Tensor, Tensor], Tensor], last: str) -> None:
    def hook(layer: nn.Module, args: Any, output: Any) -> Any:
        return change(layer, args[0], output) if args and isinstance(output, Tensor) else output

    for path, layer in _layers(model):
        if path != last:
            layer.register_forward_hook(hook)


def _skip(factor: float) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    return lambda layer, x, y: x + factor * y if x.shape == y.shape else y


def _normalised(layer: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """A batch norm of channels; over the last axis alone where a linear layer sees many places of a sample."""
    if y.dim() > 2 and isinstance(layer, nn.Linear):
        return F.layer_norm(y, y.shape[-1:])
    return F.batch_norm(y, None, None, training=True)
