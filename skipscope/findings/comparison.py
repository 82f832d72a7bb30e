"""Findings about several networks of one run: what differs between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from skipscope.findings.finding import Finding
from skipscope.findings.networks import MeasuredNetwork
from skipscope.wording import share

APART = 0.02  # of accuracies: what is worth a sentence
COMPARED = 6  # networks that a sentence can name


def accuracies(networks: Sequence[MeasuredNetwork]) -> Iterator[Finding]:
    found = {network.name: last_accuracy(network) for network in networks}
    found = {name: value for name, value in found.items() if math.isfinite(value)}
    if len(found) < 2 or max(found.values()) - min(found.values()) < APART:
        return
    ordered = sorted(found, key=lambda name: -found[name])
    best, *others = [f"the {name} network" for name in ordered]
    rest = ", ".join(f"{other} {accuracy(found[name])}" for other, name in zip(others, ordered[1:], strict=True))
    sentence = f"{best[:1].upper()}{best[1:]} reaches {accuracy(found[ordered[0]])} on test images, {rest}."
    first = next(network for network in networks if "history" in network.datasets)
    apart = max(found.values()) - min(found.values())
    yield Finding(
        "accuracy",
        sentence,
        severity="notable",
        numbers=found,
        measure="history",
        figure=first.figure("history"),
        weight=10 + apart,  # what a reader asks first
    )


def directions(networks: Sequence[MeasuredNetwork]) -> Iterator[Finding]:
    """How many directions get through the last stage."""
    lost = {network.name: lost_in_last_stage(network) for network in networks}
    lost = {name: value for name, value in lost.items() if math.isfinite(value)}
    if len(lost) < 2 or max(lost.values()) - min(lost.values()) < APART:
        return
    worst, *others = sorted(lost, key=lambda name: -lost[name])
    rest = ", ".join(f"the {name} one {share(lost[name])}" for name in others)
    sentence = (
        f"In its last stage the {worst} network loses {share(lost[worst])} of all directions (singular values that are "
        f"zero), {rest}."
    )
    first = next(network for network in networks if "spectra" in network.datasets)
    apart = max(lost.values()) - min(lost.values())
    yield Finding(
        "directions are lost",
        sentence,
        severity="notable",
        numbers=lost,
        measure="spectra",
        figure=first.figure("spectra", "together"),
        weight=5 + apart,
    )


COMPARISONS = (accuracies, directions)


def last_accuracy(network: MeasuredNetwork) -> float:
    history = network.get("history")
    if history is None or "test_accuracy" not in history or not history["test_accuracy"].size:
        return math.nan
    return float(history["test_accuracy"].values[-1])


def lost_in_last_stage(network: MeasuredNetwork) -> float:
    stages = list(network.of_stages("share_zero").values())
    return stages[-1] if stages else math.nan


def accuracy(value: float) -> str:
    return f"{100 * value:.1f} %"


def strongest(network: MeasuredNetwork) -> tuple[str, float, str]:
    """The unit that amplifies most, how much, and what that is: its largest singular value, where that is known."""
    for quantity, words in (("largest", "largest singular value"), ("gain", "largest gain")):
        values = network.of_units(quantity)
        if values:
            unit = max(values, key=lambda name: values[name])
            return unit, values[unit], words
    return "", math.nan, ""
