"""A check before training: does information survive to the last layer, do gradients come back?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from skipscope.check.forecast import Finding, Forecast
from skipscope.check.rules import NORM, RULES, SKIPS, VARIANCE, Rule
from skipscope.check.signals import Measured, measured
from skipscope.check.units import unit_spectra
from skipscope.errors import SkipscopeError
from skipscope.report.table import number

if TYPE_CHECKING:
    import xarray

SHOWN = 5  # layers that a sentence names
USUAL = (0.01, 100)  # sizes of inputs that need no remark
FEW = 16  # samples; with fewer, batch norms over few places make gradients degenerate
CONTRIBUTING = 3  # units that a sentence names


def check(model: nn.Module, x: Any, *, seed: int = 0, units: bool = True) -> Forecast:
    """Forecast whether a model trains from the weights that it has, at a batch of at least two different samples.

    Nothing is trained and nothing of the model changes. x: a tensor, a tuple of positional or a dict of keyword inputs,
    with real data if there are some; more samples give a steadier rank (the thresholds were found with 32). seed: of
    the random functionals whose gradients are followed back. units: look at the spectra of the residual units as well,
    on a copy of the model whose graph is exported, which takes seconds where it is large; no rule needs them.
    """
    found = measured(model, x, seed)
    spectra, left_out = _units(model, x, seed, found) if units else (None, "")
    findings = (
        [_not_finite(found)]
        if found.not_finite
        else [_broken(rule, found, spectra) for rule in RULES if rule.broken(found.signals)]
    )
    if found.cut:
        sentence = (
            f"Gradients do not come back: there is none for {_listed(found.cut)}, as where detach() cuts them off."
        )
        findings.insert(0, Finding("gradients are cut off", sentence, ("a path of gradients from the loss to them",)))
    notes = _notes(model, found) + ([f"Units were not measured: {left_out}."] if left_out else [])
    return Forecast(tuple(findings), found.signals, found.layers, tuple(notes), spectra)


def _units(model: nn.Module, x: Any, seed: int, found: Measured) -> tuple[xarray.Dataset | None, str]:
    """The spectra of the units, or why there are none."""
    if found.not_finite:
        return None, "not all numbers are finite"
    try:
        return unit_spectra(model, x, seed), ""
    except SkipscopeError as error:
        return None, str(error).partition(". Name the modules")[0]  # a check has no names of units to take
    except torch.OutOfMemoryError:
        return None, "there is not enough memory for a copy of the model and its states"


def _not_finite(found: Measured) -> Finding:
    if found.overflow:
        return Finding("not finite", f"Numbers overflow: not all of {found.not_finite} is finite.", (NORM, VARIANCE))
    sentence = (
        f"Numbers are not defined: {found.not_finite} has some that are not a number, and nothing is infinite there."
    )
    return Finding(
        "not finite", sentence, ("finite weights", "no division by zero, logarithm or root out of its range")
    )


def _broken(rule: Rule, found: Measured, units: xarray.Dataset | None) -> Finding:
    value = found.signals[rule.signal]
    sentence = rule.sentence(value)
    crossed = [place for place, at in enumerate(found.by_layer.get(rule.signal, ())) if rule.beyond(at)]
    if crossed:
        backwards = rule.signal == "gradient_growth"
        place = found.layers["layer"].values[crossed[-1] if backwards else crossed[0]]
        sentence += (
            f" It is past the threshold {'back to' if backwards else 'from'} {place}{'' if backwards else ' on'}."
        )
    if units is not None:
        sentence += _contributing(rule, value, units)
    remedies = tuple(remedy for remedy in rule.remedies if units is None or remedy != SKIPS)  # it has skips
    return Finding(rule.name, sentence, remedies, value, rule.threshold)


def _contributing(rule: Rule, value: float, units: xarray.Dataset) -> str:
    """The units that the remedy is for: those with the largest share of a growth, or of all spread."""
    if rule.signal in ("growth", "gradient_growth"):
        shares = (units["gain"] / value).to_series()
        rest = f"; all {len(shares)} together {shares.sum():.0%} (logarithms of the size of their singular values)"
    elif rule.signal == "gradient_rank" and (spread := float(units["spread"].sum())) > 0:
        shares = (units["spread"] / spread).to_series()
        rest = f" of the spread of all their singular values, {spread:.3g}"
    else:
        return ""
    largest = shares[shares > 0].sort_values(ascending=False, kind="stable")[:CONTRIBUTING]
    named = ", ".join(f"{name} ({share:.1%})" for name, share in largest.items())
    return f" Units that contribute most: {named}{rest}." if named else ""


def _listed(layers: Sequence[str]) -> str:
    shown = ", ".join(layers[:SHOWN]) + (f" and {len(layers) - SHOWN} more" if len(layers) > SHOWN else "")
    return f"{'layer' if len(layers) == 1 else 'layers'} {shown}"


def _notes(model: nn.Module, found: Measured) -> list[str]:
    about = found.layers.attrs
    notes = [
        f"Measured at {found.layers.sizes['layer']} states with {about['samples']} samples; {about['mode']}; gradients "
        f"{about['gradient']}. It describes the weights that the model has now."
    ]
    steps = max((_steps(module) for module in model.modules()), default=0)
    if steps:
        notes.append(f"The model has been in training before: its batch norms have counted {steps} batches.")
    if about["samples"] < FEW and any(isinstance(module, _BatchNorm) for module in model.modules()):
        notes.append(f"{about['samples']} samples are few for batch norms: the verdict may be that of the batch.")
    if found.input_rms is not None and not USUAL[0] <= found.input_rms <= USUAL[1]:
        notes.append(f"The inputs are far from 1 in size (root mean square {number(found.input_rms)}): scale them.")
    if found.frozen:
        frozen = _listed(found.frozen)
        notes.append(f"Frozen by the model itself, and measured as if it were not: {frozen}.")
    left = [name for name, value in found.signals.items() if math.isnan(value)]
    if left:
        notes.append(f"Not measured here: {', '.join(left)}.")
    return notes


def _steps(module: nn.Module) -> int:
    counted = module.num_batches_tracked if isinstance(module, _BatchNorm) else None
    return 0 if counted is None else int(counted)
