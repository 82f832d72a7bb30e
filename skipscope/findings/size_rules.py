"""Rules on sizes: of states, gradients and branches, unit by unit, against models of the same kind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy

from skipscope.findings.finding import Finding
from skipscope.findings.networks import UNKNOWN, MeasuredNetwork
from skipscope.findings.sentences import (
    finding_about,
    models_of_kind,
    named,
    one_does,
    others,
    out_of,
    outside_usual,
    usual_words,
)
from skipscope.wording import counted, number, share, without_one_times

OUTSTANDING = 2.0  # times its neighbours: what a unit is named for
NEIGHBOURS = 2  # to each side, of the same stage and kind
IDLE = 0.01  # |branch| / |skip|, below which a unit hardly changes its state
EXPLODING, VANISHING = 10**4.2, 10**-3.4  # of gradients: the thresholds of `skipscope check`, where training fails
FEW_SAMPLES = 4  # with fewer, the rank of a batch says nothing
# Of normal findings, what a reader asks first: does a signal get through, are the units like others, what is strongest?
WEIGHT_OF_ENDS, WEIGHT_OF_UNITS, WEIGHT_OF_STRONGEST = 0.9, 0.8, 0.7


def not_finite(network: MeasuredNetwork) -> Iterator[Finding]:
    profile = network.get("profile")
    if profile is None:
        return
    for key, what in (("state_rms", "states"), ("gradient_rms", "gradients")):
        values = profile[key].values
        if key == "gradient_rms" and numpy.isnan(values).all():
            continue  # not measured: an operation has no derivative
        bad = [str(unit) for unit in profile["unit"].values if not numpy.isfinite(profile[key].sel(unit=unit)).all()]
        if bad:
            sentence = f"{network.words}{what} are not finite, first at {bad[0]} ({counted(len(bad), 'unit')} in all)."
            yield finding_about(network, "not finite", sentence, "problem", "profile", unit=bad[0])


def gradients(network: MeasuredNetwork) -> Iterator[Finding]:
    growth = network.whole("gradient_growth")
    if not growth > 0 or not math.isfinite(growth):
        return
    kind = network.kind
    if growth > EXPLODING or growth < VANISHING:
        word = "explode" if growth > 1 else "vanish"
        sentence = (
            f"{network.words}gradients {word}: at the first unit they are {number(growth)} times as large as at the "
            "last. Networks like that did not train in the experiments behind `skipscope check`."
        )
        remedies = ("run `skipscope check`, which tries remedies on a copy",)
        threshold = EXPLODING if growth > 1 else VANISHING
        numbers = {"gradient_growth": growth, "threshold": threshold}
        yield finding_about(network, f"gradients {word}", sentence, "problem", "profile", numbers, remedies=remedies)
        return
    range_ = network.usual("gradient_growth", kind)
    if range_ is not None and growth not in range_:
        sentence = (
            f"{network.words}gradients come back {number(growth)} times as large at the first unit as at the last; "
            f"{usual_words(range_, kind)}."
        )
        yield outside_usual(network, "gradient growth", sentence, "profile", growth, range_)


def state_growth(network: MeasuredNetwork) -> Iterator[Finding]:
    growth, kind = network.whole("state_growth"), network.kind
    range_ = network.usual("state_growth", kind)
    if range_ is not None and math.isfinite(growth) and growth not in range_:
        sentence = (
            f"{network.words}the state is {number(growth)} times as large at the last unit as at the first"
            f"{network.sizes_of}; {usual_words(range_, kind)}."
        )
        yield outside_usual(network, "state growth", sentence, network.sizes_by, growth, range_)


def massive_first_token(network: MeasuredNetwork) -> Iterator[Finding]:
    first = network.first_token
    if first is not None:
        where = first.unit if first.unit.startswith("exit of ") else f"the entry of {first.unit}"
        sentence = (
            f"{network.words}the state of the first token is {number(first.times)} times as large as those of the "
            f"others at {where}, most in channel {first.dimension}; sizes of states and branches here are without it."
        )
        numbers = {"times": first.times, "channel": float(first.dimension)}
        unit = first.unit.removeprefix("exit of ")
        yield finding_about(network, "massive first token", sentence, "notable", "depth_use", numbers, unit)


def samples_alike(network: MeasuredNetwork) -> Iterator[Finding]:
    profile, kept = network.get("profile"), network.whole("rank_kept")
    range_ = network.usual("rank_kept", network.kind)
    samples = 0 if profile is None else profile.sizes.get("sample", 1)
    if profile is None or range_ is None or samples < FEW_SAMPLES or not kept < range_.low:
        return
    last, first = (float(profile["effective_rank"][place]) for place in (-1, 0))
    sentence = (
        f"{network.words}samples become alike: the effective rank of their states falls from {number(first)} to "
        f"{number(last)} (at most {samples}, the number of samples); "
        f"{usual_words(range_, network.kind, 'last over first')}."
    )
    yield outside_usual(network, "samples become alike", sentence, "profile", kept, range_, first=first, last=last)


def amplifiers(network: MeasuredNetwork) -> Iterator[Finding]:
    """A unit that stands out among its neighbours, or is out of the range of its kind."""
    largest, gains = network.of_units("largest"), network.of_units("gain")
    for values, quantity, what, measure in (
        (
            largest,
            "largest",
            "amplifies its strongest direction",
            network.measured_by("largest"),
        ),
        (gains, "gain", "multiplies a random change", "profile"),
    ):
        standing = outstanding(network, values)
        if standing:
            unit, (value, around) = max(standing.items(), key=lambda item: item[1][0] / item[1][1])
            ratio = value / around
            do = "does" if len(standing) == 2 else "do"
            more = f"; so {do} {others(len(standing) - 1, 'unit')}" if len(standing) > 1 else ""
            sentence = (
                f"{network.words}{unit} {what} {number(value)} times, {number(ratio)} times as much as its neighbours "
                f"({number(around)}){more}."
            )
            numbers = {quantity: value, "neighbours": around}
            yield finding_about(
                network, "a unit stands out", sentence, "unusual", measure, numbers, unit=unit, weight=ratio
            )
            return
    kinds = network.coordinate("branch")
    for values, quantity, name, what, measure in (
        (gains, "gain", "gain", "multiply random changes", "profile"),
        (
            largest,
            "largest",
            "strongest direction",
            "amplify their strongest direction",
            network.measured_by("largest"),
        ),
    ):
        outside = network.above_usual(quantity)
        if outside:
            unit, (value, range_) = next(iter(outside.items()))
            those = unit if len(outside) == 1 else out_of(len(outside), len(values))
            most = "" if len(outside) == 1 else f", most {unit}"
            sentence = (
                f"{network.words}{those} {what if len(outside) > 1 else one_does(what)} more than is usual{most}: "
                f"{number(value)} times; {usual_words(range_, kinds.get(unit, UNKNOWN))}."
            )
            yield outside_usual(network, name, sentence, measure, value, range_, unit=unit)
            return
    if largest:
        unit = max(largest, key=lambda name: largest[name])
        known = network.usual("largest", kinds.get(unit, UNKNOWN))
        compared = f"; {usual_words(known, kinds.get(unit, UNKNOWN))}" if known is not None else ""
        sentence = (
            f"{network.words}{unit} amplifies its strongest direction most of all units: {number(largest[unit])} "
            f"times{compared}."
        )
        numbers = {"largest": largest[unit]}
        yield finding_about(
            network,
            "strongest direction",
            sentence,
            "normal",
            network.measured_by("largest"),
            numbers,
            unit,
            WEIGHT_OF_STRONGEST,
        )


def branches(network: MeasuredNetwork) -> Iterator[Finding]:
    ratios, kinds = network.of_units("branch_over_skip"), network.coordinate("branch")
    idle = [unit for unit, ratio in ratios.items() if ratio < IDLE]
    if idle:
        sentence = (
            f"{network.words}{out_of(len(idle), len(ratios))} hardly change their state: their branch is below "
            f"{share(IDLE)} of the skip{network.sizes_of} ({named(idle)})."
        )
        smallest = min(ratios[unit] for unit in idle)
        numbers = {"smallest": smallest, "units": float(len(idle))}
        weight = len(idle) / len(ratios)
        measure = network.sizes_by
        yield finding_about(network, "idle units", sentence, "notable", measure, numbers, unit=idle[0], weight=weight)
    large = network.above_usual("branch_over_skip")
    if large:
        unit, (ratio, range_) = next(iter(large.items()))
        those = unit if len(large) == 1 else out_of(len(large), len(ratios))
        most = "" if len(large) == 1 else f", most in {unit}"
        compared = "is larger than the skip" if ratio >= 1 else "is large beside the skip"
        sentence = (
            f"{network.words}in {those} the branch {compared}{most}: {number(ratio)} times as large"
            f"{network.sizes_of}; {usual_words(range_, kinds.get(unit, UNKNOWN))}."
        )
        yield outside_usual(network, "branch over skip", sentence, network.sizes_by, ratio, range_, unit=unit)


def ends_as_usual(network: MeasuredNetwork) -> Iterator[Finding]:
    """What becomes of states and gradients on their way: like other models, or not compared with them."""
    parts, numbers = [], {}
    for quantity, words in (
        ("gradient_growth", "gradients come back {} times as large"),
        ("state_growth", f"the last state is {{}} times as large as the first{network.sizes_of}"),
    ):
        value, range_ = network.whole(quantity), network.usual(quantity, network.kind)
        usual = range_ is not None and value in range_
        if math.isfinite(value) and (usual or not network.comparable):
            parts.append(without_one_times(words.format(number(value))))
            numbers[quantity] = value
    if not parts:
        return
    if network.comparable:
        sentence = f"{network.words}as usual for {models_of_kind(network.kind)}: {'; '.join(parts)}."
        yield finding_about(network, "usual ends", sentence, "normal", "profile", numbers, weight=WEIGHT_OF_ENDS)
    else:
        sentence = (
            f"{network.words}sizes are not compared with other models, because batch norms have never seen data: "
            f"{'; '.join(parts)}."
        )
        yield finding_about(network, "not compared", sentence, "notable", "profile", numbers)


def units_as_usual(network: MeasuredNetwork) -> Iterator[Finding]:
    """Of the units: what was compared with other models and is, for most of them, like those, in one sentence."""
    kinds, parts = network.coordinate("branch"), []
    of_skips = f" of their skips{network.sizes_of}"
    numbers: dict[str, float] = {}
    for quantity, words in (("gain", "they multiply random changes by"), ("branch_over_skip", "branches are")):
        values = network.of_units(quantity)
        known = {unit: network.usual(quantity, kinds.get(unit, UNKNOWN)) for unit in values}
        inside = [range_ is not None and values[unit] in range_ for unit, range_ in known.items()]
        if 2 * sum(inside) > len(inside) and not network.above_usual(quantity):
            lowest, highest = min(values.values()), max(values.values())
            ends = number(lowest) if number(lowest) == number(highest) else f"{number(lowest)} to {number(highest)}"
            parts.append(f"{words} {ends}{of_skips if quantity == 'branch_over_skip' else ''}")
            numbers |= {f"{quantity}_lowest": lowest, f"{quantity}_highest": highest}
    if parts:
        among = " and ".join(models_of_kind(kind) for kind in network.kinds)
        sentence = f"{network.words}units are as usual for {among}: {'; '.join(parts)}."
        yield finding_about(network, "usual units", sentence, "normal", "profile", numbers, weight=WEIGHT_OF_UNITS)


def outstanding(network: MeasuredNetwork, values: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Units with an identity skip that amplify, by far more than the median of those around them, and that median."""
    stages, kinds, skips = (network.coordinate(name) for name in ("stage", "branch", "skip"))
    alike: dict[tuple[str, str], list[str]] = {}
    for unit in values:
        if skips.get(unit, "identity") in ("identity", "scaled", "none"):
            alike.setdefault((stages.get(unit, ""), kinds.get(unit, "")), []).append(unit)
    found = {}
    for units in alike.values():
        for place, unit in enumerate(units):
            near = [*units[max(place - NEIGHBOURS, 0) : place], *units[place + 1 : place + 1 + NEIGHBOURS]]
            if len(near) < NEIGHBOURS:
                continue
            around = float(numpy.median([values[other] for other in near]))
            if around > 0 and values[unit] > 1 and values[unit] >= OUTSTANDING * around:
                found[unit] = (values[unit], around)
    return found
