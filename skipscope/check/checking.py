"""A check before training: does information survive to the last layer, do gradients come back?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from skipscope.check.diagnoses import Origin, diagnoses, listed, origin_of_not_finite
from skipscope.check.forecast import Forecast
from skipscope.check.remedies import NOT_FINITE, Trial, branch_ends, broken_in, trials, why_not
from skipscope.check.rules import Rule, by_signal, rules_for
from skipscope.check.short_training import Lesson, ShortTraining, train_shortly
from skipscope.check.signals import CALIBRATED, Measured, measured
from skipscope.check.units import NoUnitsError, spectra_of_units
from skipscope.data import Split
from skipscope.findings import Finding
from skipscope.measure.layers import OUTPUT
from skipscope.optimisers import OPTIMISERS, kind_of
from skipscope.renamed import renamed_parameters
from skipscope.report.table import number
from skipscope.trace.inputs import Inputs
from skipscope.trace.tracing import own_output
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray

USUAL_SIZES = (0.01, 100)  # of inputs, which need no note
ENOUGH_FOR_BATCH_NORMS = 16  # samples; with fewer, batch norms over few places make gradients degenerate
CONTRIBUTING = 3  # units that a sentence names, of those that stand out:
SHARE = 0.1  # of the whole, at least
OUTSTANDING = 2.0  # times the median of the others


@renamed_parameters(units="unit_spectra")
def check(
    model: nn.Module,
    x: Any,
    *,
    optimiser: str = "sgd",
    seed: int = 0,
    unit_spectra: bool = True,
    train_on: tuple[Any, Tensor] | Split | None = None,
) -> Forecast:
    """Forecast whether a model trains from the weights that it has, at a batch of at least two different samples.

    Nothing of the model changes; where something is found, remedies are tried on copies. x: a tensor, a tuple of
    positional or a dict of keyword inputs, with real data if there are some. The thresholds were found with 32 samples;
    with fewer, some rules may not be answered. optimiser: "sgd", or "adam" ("adamw", "rmsprop", ...) for all that
    rescale the step of every weight, which train networks that the other does not; they have thresholds of their own.
    seed: of the random functionals whose gradients are followed back. unit_spectra: look at the spectra of the residual
    units as well, on a copy of the model whose graph is exported, which takes seconds where it is large; no rule needs
    them, remedies that change branches or add skips do. train_on: some hundred samples or more, in the form that x has,
    and their labels, whole numbers; or a part of a data set, such as `digits().train`. Copies are trained on them for
    some hundred steps, 1,848 at most, and what they learn counts more than the rules. Without it nothing is trained.
    """
    optimiser = kind_of(optimiser)
    rules = rules_for(optimiser)
    lesson = None if train_on is None else Lesson.of(model, train_on, seed)  # refused before anything is measured
    found = measured(model, x, seed)
    _refuse_what_is_no_function(model, x)
    spectra, left_out, without_units = _units(model, x, seed, found) if unit_spectra else (None, "", False)
    origin = origin_of_not_finite(model, x) if found.not_finite else None
    trained = None if lesson is None else train_shortly(lesson, optimiser=optimiser, seed=seed)
    broken = broken_in(found, optimiser)
    to_mend = bool(broken) and (not found.not_finite or _overflows(origin)) and not (trained and trained.learns)
    tried, untried = trials(model, x, seed, optimiser, found, spectra, without_units) if to_mend else ((), [])
    unanswered = {} if broken == (NOT_FINITE,) else _unanswered(found, rules)
    findings = _findings(found, origin, spectra, tried, broken, rules)
    findings = findings or _as_expected(found, unanswered, rules)
    if trained is not None:
        findings = _with_training(findings, trained)
    notes = _notes(model, found, optimiser)
    notes += [] if trained is None else [trained.note]
    notes += [f"Units were not measured: {left_out}."] if left_out else []
    notes += untried
    return Forecast(
        tuple(findings),
        found.signals,
        found.layers,
        tuple(notes),
        spectra,
        errors=found.errors,
        unanswered=unanswered,
        diagnoses=()
        if found.not_finite
        else tuple(diagnoses(model, x, () if spectra is None else branch_ends(spectra))),
        trials=tried,
        optimiser=optimiser,
        short_training=trained,
    )


def _with_training(findings: list[Finding], trained: ShortTraining) -> list[Finding]:
    """Where copies have learnt, a rule that is broken is no problem; what is no matter of a threshold remains one."""
    if not trained.learns:
        return [*(finding for finding in findings if finding.severity == "problem"), trained.finding]
    learnt = "A short training learns all the same."
    return [
        trained.finding,
        *(
            replace(finding, severity="notable", sentence=f"{finding.sentence} {learnt}", remedies=())
            if finding.severity == "problem" and finding.threshold is not None
            else finding
            for finding in findings
        ),
    ]


def _refuse_what_is_no_function(model: nn.Module, x: Any) -> None:
    """A forward that draws random numbers in evaluation mode, or that has no values."""
    model = unwrapped(model)
    inputs = Inputs.of(model, x)
    inputs.check_values(model)
    inputs.check_device(model)
    own_output(model, inputs)


def _findings(
    found: Measured,
    origin: Origin | None,
    units: xarray.Dataset | None,
    tried: tuple[Trial, ...],
    broken: tuple[str, ...],
    rules: tuple[Rule, ...],
) -> list[Finding]:
    findings = []
    if found.cut:
        sentence = (
            f"Gradients do not come back: there is none for {listed(found.cut)}, as where detach() cuts them off."
        )
        findings.append(Finding("gradients are cut off", sentence, ("a path of gradients from the loss to them",)))
    if broken == (NOT_FINITE,):
        mending = tuple(trial.remedy for trial in tried if not trial.broken)
        findings.append(_not_finite(found, origin, mending))
    else:
        findings += [_broken(rule, found, units, tried, broken) for rule in rules if rule.name in broken]
    return findings


def _as_expected(found: Measured, unanswered: Mapping[str, str], all_rules: tuple[Rule, ...]) -> list[Finding]:
    """Where nothing is broken: what was looked at, one finding for each signal that was measured."""
    findings = []
    for signal, rules in by_signal(all_rules).items():
        value = found.signals[signal]
        if math.isnan(value) or any(rule.name in unanswered for rule in rules):
            continue
        limits = ", ".join(sorted(rule.limit for rule in rules))
        words = rules[0].in_words(value)
        near = any(rule.near(value, found.errors.get(signal, 0.0)) for rule in rules)
        numbers = {signal: rules[0].plain(value)}
        findings.append(
            Finding(
                signal.replace("_", " "),
                f"{words[:1].upper()}{words[1:]} (expected: {limits}).",
                near=near,
                severity="normal",
                numbers=numbers,
                measure=found.layers.attrs["measure"],
            )
        )
    return findings


def _unanswered(found: Measured, rules: tuple[Rule, ...]) -> dict[str, str]:
    """Rules that nothing was found for, and that could not have been broken or were not measured."""
    reasons = {}
    for rule in rules:
        value = found.signals[rule.signal]
        if rule.signal == "rank" and not rule.beyond(value) and rule.beyond(found.rank_at_least):
            reasons[rule.name] = (
                f"{found.layers.attrs['samples']} samples are too few to see whether information survives: they differ "
                f"at the last layer in {rule.shown(value)} times as many directions as at the first, with {CALIBRATED} "
                f"it may be down to {rule.shown(found.rank_at_least)} (threshold {rule.shown(rule.threshold)}). Take "
                f"{CALIBRATED} samples."
            )
        elif math.isnan(value) and rule.signal != "loss":  # many networks have no scores of classes
            reasons[rule.name] = f"Whether {rule.name} cannot be measured here."
    return reasons


def _units(model: nn.Module, x: Any, seed: int, found: Measured) -> tuple[xarray.Dataset | None, str, bool]:
    """The spectra of the units, or why they were not measured and whether that is because there are none."""
    if found.not_finite:
        return None, "not all numbers are finite", False
    try:
        return spectra_of_units(model, x, seed), "", False
    except Exception as error:
        why = why_not(error).partition(". Name the modules")[0]  # a check has no names of units to take
        return None, why, isinstance(error, NoUnitsError)


def _overflows(origin: Origin | None) -> bool:
    """Whether an operation makes numbers too large, rather than undefined ones or what a weight already holds."""
    return origin is not None and origin.overflow and not origin.weight


def _not_finite(found: Measured, origin: Origin | None, mending: tuple[str, ...]) -> Finding:
    if found.gradient_not_finite:
        sentence = (
            "Gradients are not finite: not all of those that come back to what enters "
            f"{found.gradient_not_finite} are, while all states are."
        )
        look = ("no root of zero, norm of a zero vector or the like behind it, whose derivative is infinite",)
        return Finding(NOT_FINITE, sentence, mending or look)
    state = found.not_finite if "output" in found.not_finite else f"what enters {found.not_finite}"
    arise = f"{origin.words}, so that " if origin else ""
    if _overflows(origin):
        return Finding(NOT_FINITE, f"Numbers overflow: {arise}not all of {state} is finite.", mending)
    sentence = f"Numbers are not defined: {arise}{state} has some that are not a number or infinite."
    if origin and origin.weight:
        return Finding(NOT_FINITE, sentence, ("finite weights: load them, or draw new ones",))
    return Finding(NOT_FINITE, sentence, ("no division by zero, logarithm or root out of its range",))


def _broken(
    rule: Rule, found: Measured, units: xarray.Dataset | None, tried: tuple[Trial, ...], broken: tuple[str, ...]
) -> Finding:
    value = found.signals[rule.signal]
    sentence = rule.sentence(value)
    layer = ""
    crossed = [place for place, at in enumerate(found.by_layer.get(rule.signal, ())) if rule.beyond(at)]
    if crossed:
        backwards = rule.signal == "gradient_growth"
        name = found.layers["layer"].values[crossed[-1] if backwards else crossed[0]]
        place = f"the {name}" if name == OUTPUT else f"layer {name}"
        layer = "" if name == OUTPUT else str(name)
        sentence += (
            f" It is past the threshold {'back to' if backwards else 'from'} {place}{'' if backwards else ' on'}."
        )
    if units is not None:
        sentence += _contributing(rule, value, units)
    remedies = [
        f"{trial.remedy} ({rule.shown(value)} becomes {rule.shown(trial.signals[rule.signal])})"
        for trial in tried
        if trial.helps(rule.name, broken)
    ]
    near = rule.near(value, found.errors.get(rule.signal, 0.0))
    return Finding(
        rule.name,
        sentence,
        tuple(remedies),
        value,
        rule.threshold,
        near,
        unit=layer,
        numbers={rule.signal: rule.plain(value), "threshold": rule.plain(rule.threshold)},
        measure=found.layers.attrs["measure"],
    )


def _contributing(rule: Rule, value: float, units: xarray.Dataset) -> str:
    """The units that the remedy is for: those with far more than the others of a growth, or of all spread."""
    if rule.signal in ("growth", "gradient_growth"):
        shares = (units["gain"] / value).to_series()
        rest = f"; all {len(shares)} together {shares.sum():.0%} (logarithms of the size of their singular values)"
    elif rule.signal == "gradient_rank" and (spread := float(units["spread"].sum())) > 0:
        shares = (units["spread"] / spread).to_series()
        rest = f" of the spread of all their singular values, {spread:.3g}"
    else:
        return ""
    outstanding = [
        f"{name} ({share:.1%})"
        for name, share in shares.sort_values(ascending=False, kind="stable").items()
        if share >= SHARE and not share <= OUTSTANDING * shares.drop(name).median()
    ]
    return f" Units that contribute most: {', '.join(outstanding[:CONTRIBUTING])}{rest}." if outstanding else ""


def _notes(model: nn.Module, found: Measured, optimiser: str) -> list[str]:
    about = found.layers.attrs
    notes = [
        f"Measured at {found.layers.sizes['layer']} states with {about['samples']} samples; {about['mode']}; gradients "
        f"{about['gradient']}. It describes the weights that the model has now.",
        f"To train means by {OPTIMISERS[optimiser]}: where the loss diverges, take a smaller one.",
    ]
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    steps = max((int(norm.num_batches_tracked) for norm in norms if norm.num_batches_tracked is not None), default=0)
    if steps:
        notes.append(f"The model has been in training before: its batch norms have counted {steps} batches.")
    if about["samples"] < ENOUGH_FOR_BATCH_NORMS and norms:
        notes.append(f"{about['samples']} samples are few for batch norms: the verdict may be that of the batch.")
    if found.input_rms is not None and not USUAL_SIZES[0] <= found.input_rms <= USUAL_SIZES[1]:
        notes.append(f"The inputs are far from 1 in size (root mean square {number(found.input_rms)}): scale them.")
    if found.frozen:
        frozen = listed(found.frozen)
        notes.append(f"Frozen by the model itself, and measured as if it were not: {frozen}.")
    left = [name for name, value in found.signals.items() if math.isnan(value)]
    if left:
        notes.append(f"Not measured here: {', '.join(left)}.")
    return notes
