"""A check before training: does information survive to the last layer, do gradients come back?"""

from __future__ import annotations

import math
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from skipscope.check.forecast import Finding, Forecast
from skipscope.check.rules import NORM, RULES, VARIANCE
from skipscope.check.signals import Measured, measured


def check(model: nn.Module, x: Any, *, seed: int = 0) -> Forecast:
    """Forecast whether a model trains from the weights that it has, at a batch of at least two different samples.

    Nothing is trained and nothing of the model changes. x: a tensor, a tuple of positional or a dict of keyword inputs,
    with real data if there are some; more samples give a steadier rank (the thresholds were found with 32). seed: of
    the random functionals whose gradients are followed back.
    """
    found = measured(model, x, seed)
    findings = [
        Finding(rule.name, rule.sentence(value), rule.remedies, value, rule.threshold)
        for rule in RULES
        if rule.broken(found.signals)
        for value in [found.signals[rule.signal]]
    ]
    if found.not_finite:
        sentence = f"Numbers overflow: not all of {found.not_finite} is finite."
        findings.insert(0, Finding("not finite", sentence, (NORM, VARIANCE)))
    return Forecast(tuple(findings), found.signals, found.layers, tuple(_notes(model, found)))


def _notes(model: nn.Module, found: Measured) -> list[str]:
    about = found.layers.attrs
    notes = [
        f"Measured at {found.layers.sizes['layer']} states with {about['samples']} samples; {about['mode']}; gradients "
        f"{about['gradient']}. It describes the weights that the model has now."
    ]
    steps = max((_steps(module) for module in model.modules()), default=0)
    if steps:
        notes.append(f"The model has been in training before: its batch norms have counted {steps} batches.")
    left = [name for name, value in found.signals.items() if math.isnan(value)]
    if left:
        notes.append(f"Not measured here: {', '.join(left)}.")
    return notes


def _steps(module: nn.Module) -> int:
    counted = module.num_batches_tracked if isinstance(module, _BatchNorm) else None
    return 0 if counted is None else int(counted)
