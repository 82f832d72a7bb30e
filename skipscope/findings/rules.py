"""Rules from the numbers of one network to findings. Each looks at one question and finds nothing, or a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy

from skipscope.findings.finding import Finding, Severity
from skipscope.findings.networks import UNKNOWN, MeasuredNetwork
from skipscope.findings.sentences import finding_about, named, one_does, others, out_of, outside_usual, usual_words
from skipscope.findings.size_rules import (
    amplifiers,
    branches,
    ends_as_usual,
    gradients,
    massive_first_token,
    not_finite,
    samples_alike,
    state_growth,
    units_as_usual,
)
from skipscope.wording import counted, number, share

LOST = 0.2  # share of directions that a unit or stage loses, from which on it is worth a sentence
PLATEAU = 0.3  # share of singular values near 1, as in the first claim of paper D
FASTER = 2.0  # growth of an adversarial change over that of a random one
STRAIGHT = 1.15  # line shape score
ILL_CONDITIONED = 1e4
ALIGNED = 0.77  # m_K over its chance level
# Of normal findings; the rules on sizes have larger ones.
WEIGHT_OF_KEPT, WEIGHT_OF_CONDITION = 0.6, 0.1


def alarms(network: MeasuredNetwork) -> Iterator[Finding]:
    """Of a training that was monitored: what rang, the first one first."""
    rung, watched = network.get("alarms"), network.get("monitor")
    if rung is None:
        if watched is not None:
            last = int(watched["step"].max())
            sentence = f"{network.words}no alarm rang in {counted(last, 'step')} of training."
            yield finding_about(network, "no alarm", sentence, "normal", "monitor", {"steps": float(last)})
        return
    for place in range(rung.sizes["alarm"]):
        one = {str(key): values.values[place] for key, values in rung.data_vars.items()}
        sentence = f"{network.words}at step {int(one['step'])} an alarm rang. {one['sentence']}"
        numbers = {"step": float(one["step"]), "value": float(one["value"]), "threshold": float(one["threshold"])}
        unit, remedies = str(one["unit_of_alarm"]), tuple(filter(None, str(one["remedies"]).split("; ")))
        yield finding_about(
            network, str(one["name"]), sentence, "problem", "alarms", numbers, unit, -float(place), "monitor", remedies
        )


def wrong_derivative(network: MeasuredNetwork) -> Iterator[Finding]:
    verification = network.get("verification")
    if verification is None:
        return
    passed = verification["passed"].values.astype(bool)
    if not passed.all():
        names = [str(unit) for unit in verification["unit"].values[~passed]]
        seen = str(verification["seen"].values[~passed][0])
        sentence = (
            f"{network.words}the linearisation of {named(names)} did not pass its tests ({seen}): do not trust "
            "spectra there."
        )
        yield finding_about(network, "linearisation fails its test", sentence, "problem", "verification", unit=names[0])


def lost_directions(network: MeasuredNetwork) -> Iterator[Finding]:
    stages, units = network.of_stages("share_zero"), network.of_units("share_zero")
    kinds, figure = network.coordinate("branch"), network.figure("spectra", "proportions")
    outside = network.above_usual("share_zero")
    if outside:
        unit, (value, range_) = next(iter(outside.items()))
        those = f"{unit} loses" if len(outside) == 1 else f"{out_of(len(outside), len(units))} lose"
        most = "" if len(outside) == 1 else f", most {unit}"
        sentence = (
            f"{network.words}{those} more directions than is usual (zero singular values){most}: {share(value)}; "
            f"{usual_words(range_, kinds.get(unit, UNKNOWN), written=share)}."
        )
        yield outside_usual(
            network, "directions are lost", sentence, "spectra", value, range_, unit=unit, figure=figure
        )
        return
    for values, kind, what in ((stages, "stage", "from its entry to its exit"), (units, "unit", "")):
        lost = {name: value for name, value in values.items() if value >= LOST}
        if lost:
            name = max(lost, key=lambda each: lost[each])
            through = f" {what}" if what else ""
            more = f"; {others(len(lost) - 1, kind)} at least {share(LOST)}" if len(lost) > 1 else ""
            sentence = (
                f"{network.words}{name} loses {share(lost[name])} of the directions{through}: its Jacobian has as many "
                f"zero singular values{more}."
            )
            numbers = {"share_zero": lost[name]}
            yield finding_about(
                network, "directions are lost", sentence, "notable", "spectra", numbers, name, lost[name], figure
            )
            return
    if units:
        unit = max(units, key=lambda each: units[each])
        most = f"{unit} most: {share(units[unit])}" if units[unit] > 0 else "none has a singular value that is zero"
        sentence = f"{network.words}no unit loses {share(LOST)} of the directions ({most})."
        numbers = {"share_zero": units[unit]}
        yield finding_about(
            network, "directions are kept", sentence, "normal", "spectra", numbers, unit, WEIGHT_OF_KEPT, figure
        )


def plateau(network: MeasuredNetwork) -> Iterator[Finding]:
    near = network.of_units("share_near_one")
    flat = {unit: value for unit, value in near.items() if value >= PLATEAU}
    if flat:
        middle = float(numpy.median(list(near.values())))
        range_ = network.usual("share_near_one", network.kind)
        compared = f"; {usual_words(range_, network.kind, written=share)}" if range_ is not None else ""
        leave = "leave" if len(flat) > 1 else one_does("leave")
        sentence = (
            f"{network.words}{out_of(len(flat), len(near))} {leave} at least {share(PLATEAU)} of all directions as "
            f"they are: singular values within 1 % of 1 (median over the units {share(middle)}{compared})."
        )
        figure = network.figure("spectra", "proportions")
        numbers = {"share_near_one": middle, "units": float(len(flat))}
        weight = len(flat) / len(near)
        yield finding_about(
            network, "plateau at 1", sentence, "notable", "spectra", numbers, weight=weight, figure=figure
        )


def perturbations(network: MeasuredNetwork) -> Iterator[Finding]:
    stability = network.get("stability")
    if stability is None or "adversarial" not in stability["kind"].values:
        return
    total = (stability["rms"].isel(state=-1) / stability["rms"].isel(state=0)).median("sample")
    adversarial, random = (float(total.sel(kind=kind)) for kind in ("adversarial", "random"))
    if not (math.isfinite(adversarial) and math.isfinite(random) and random > 0):
        return
    growth = stability["actual"].sel(kind="adversarial").median("sample")
    unit = str(growth["unit"].values[int(growth.fillna(0).values.argmax())])
    sentence = (
        f"{network.words}an adversarial change of the input arrives {number(adversarial)} times as large at the last "
        f"unit, a random one {number(random)} times; it grows most in {unit} ({number(float(growth.max()))} times)."
    )
    numbers = {"adversarial": adversarial, "random": random}
    ratio = adversarial / random
    figure = network.figure("stability", "growth")
    severity: Severity = "notable" if ratio >= FASTER else "normal"
    yield finding_about(
        network, "perturbations", sentence, severity, "stability", numbers, unit, math.log10(max(ratio, 1)), figure
    )


def straightness(network: MeasuredNetwork) -> Iterator[Finding]:
    paths = network.get("trajectories")
    if paths is None:
        return
    shapes = paths["line_shape"].median("sample")
    scores = dict(zip(paths["stage"].values.tolist(), shapes.values.tolist(), strict=True))
    straight = {stage: score for stage, score in scores.items() if score <= STRAIGHT}
    if straight:
        stage = min(straight, key=lambda each: straight[each])
        sentence = (
            f"{network.words}samples move along nearly straight lines in {counted(len(straight), 'stage')} of "
            f"{len(scores)} (line shape {number(straight[stage])} in stage {stage}; 1 is straight)."
        )
        figure = network.figure("trajectories", "steps")
        numbers = {"line_shape": straight[stage]}
        yield finding_about(network, "straight paths", sentence, "notable", "trajectories", numbers, figure=figure)


def common_vectors(network: MeasuredNetwork) -> Iterator[Finding]:
    alignment = network.get("alignment")
    if alignment is None or "coupling_ujv" not in alignment or "chance" not in alignment:
        return
    pairs = alignment["coupling_ujv"].values
    same = alignment["unit"].values[:, None] == alignment["other"].values[None, :]
    dimensions = alignment["coupling_ujv"].dims
    apart = numpy.moveaxis(pairs, [dimensions.index("unit"), dimensions.index("other")], [0, 1])[~same]
    chance = alignment["chance"].values
    if not numpy.isfinite(apart).any() or not numpy.isfinite(chance).any():
        return
    over_chance = float(numpy.nanmean(apart) / numpy.nanmean(chance))
    if over_chance <= ALIGNED:
        sentence = (
            f"{network.words}units work along common directions: the coupling of their leading singular vectors is "
            f"{number(over_chance)} of that of random ones (0 is perfect, 1 is chance)."
        )
        numbers = {"coupling_over_chance": over_chance}
        yield finding_about(
            network,
            "alignment",
            sentence,
            "notable",
            "alignment",
            numbers,
            weight=1 - over_chance,
            figure=network.figure("alignment", "ujv"),
        )


def conditions(network: MeasuredNetwork) -> Iterator[Finding]:
    """Channels that are zero, and the condition numbers of weights.

    A weight that is zero throughout is left out: it has no direction that it could lose. At initialisation it is one
    that is added, such as a table of position biases, or a last matrix that is zero so that the branch begins with
    nothing; neither says that others are badly conditioned.
    """
    conditioning = network.get("conditioning")
    if conditioning is None:
        return
    if "state_zero_units" in conditioning:
        dead = {
            str(layer): float(count)
            for layer, count in zip(conditioning["layer"].values, conditioning["state_zero_units"].values, strict=True)
            if count > 0
        }
        if dead:
            layer = max(dead, key=lambda each: dead[each])
            sentence = (
                f"{network.words}channels are zero for every sample at {counted(len(dead), 'layer')}, most at {layer} "
                f"({counted(round(dead[layer]), 'channel')}): nothing passes through them."
            )
            yield finding_about(
                network,
                "dead channels",
                sentence,
                "notable",
                "conditioning",
                {"channels": dead[layer]},
                layer,
                weight=len(dead) / conditioning.sizes["layer"],
            )
    if "weight_condition" in conditioning:
        values = conditioning["weight_condition"].sel(reduction="max")
        if "weight_rank" in conditioning:
            values = values.sel(weight=conditioning["weight_rank"].sel(reduction="max").values != 0)
        bad = [
            str(name)
            for name, value in zip(values["weight"].values, values.values, strict=True)
            if value > ILL_CONDITIONED
        ]
        if bad:
            sentence = (
                f"{network.words}{out_of(len(bad), values.sizes['weight'], 'weight')} are badly conditioned, with "
                f"ratios of singular values above {number(ILL_CONDITIONED)}: {named(bad)}."
            )
            numbers = {"weights": float(len(bad))}
            yield finding_about(
                network,
                "badly conditioned weights",
                sentence,
                "notable",
                "conditioning",
                numbers,
                bad[0],
                weight=len(bad) / values.sizes["weight"],
            )
        elif values.notnull().any():
            worst = values.isel(weight=int(values.fillna(0).values.argmax()))
            name, value = str(worst["weight"].item()), float(worst)
            sentence = (
                f"{network.words}weights are well conditioned: their ratios of singular values are at most "
                f"{number(value)} ({name})."
            )
            yield finding_about(
                network,
                "well conditioned weights",
                sentence,
                "normal",
                "conditioning",
                {"weight_condition": value},
                name,
                weight=WEIGHT_OF_CONDITION,
            )


RULES = (
    alarms,
    not_finite,
    wrong_derivative,
    gradients,
    state_growth,
    massive_first_token,
    samples_alike,
    amplifiers,
    branches,
    lost_directions,
    plateau,
    perturbations,
    straightness,
    common_vectors,
    conditions,
    ends_as_usual,
    units_as_usual,
)
