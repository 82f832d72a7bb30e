"""How rules make findings: the words that many sentences have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from skipscope.findings.finding import Finding, Severity
from skipscope.findings.networks import MeasuredNetwork
from skipscope.findings.usual import Range
from skipscope.wording import counted, number

UNITS_NAMED = 3


def finding_about(
    network: MeasuredNetwork,
    name: str,
    sentence: str,
    severity: Severity,
    measure: str,
    numbers: Mapping[str, float] | None = None,
    unit: str = "",
    weight: float = 0.0,
    figure: str | None = None,
    remedies: tuple[str, ...] = (),
) -> Finding:
    """figure: None for the one that has the name of the dataset."""
    return Finding(
        name,
        sentence if sentence.startswith(tuple(filter(None, (unit, network.name)))) else _capitalised(sentence),
        remedies=remedies,
        severity=severity,
        unit=unit,
        numbers=numbers or {},
        network=network.name,
        measure=measure,
        figure=network.figure(measure) if figure is None else figure,
        weight=weight,
    )


def _capitalised(sentence: str) -> str:
    """Not where it begins with a name, which stays as it is."""
    return sentence[:1].upper() + sentence[1:]


def outside_usual(
    network: MeasuredNetwork,
    name: str,
    sentence: str,
    measure: str,
    value: float,
    range_: Range,
    unit: str = "",
    figure: str | None = None,
    **more: float,
) -> Finding:
    """A number that is out of the usual range; the farther, the higher it ranks."""
    numbers = {"value": value, "usual_low": range_.low, "usual_high": range_.high, **more}
    weight = math.log2(range_.beyond(value)) if value > 0 else math.inf
    return finding_about(network, name, sentence, "unusual", measure, numbers, unit, weight, figure)


def usual_words(range_: Range, kind: str, what: str = "", written: Callable[[float], str] = number) -> str:
    """written: how a number of that quantity is written."""
    of = f"{what} " if what else ""
    ends = f"{written(range_.low)} to {written(range_.high)}"
    return f"usual for {models_of_kind(kind)}: {of}{ends} ({range_.models} models)"


def models_of_kind(kind: str) -> str:
    names = {"attention": "attention", "convolution": "convolutional units", "linear": "units of linear layers"}
    return names.get(kind, "residual networks")


def named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:UNITS_NAMED])
    return f"{shown} and {len(names) - UNITS_NAMED} more" if len(names) > UNITS_NAMED else shown


def others(count: int, what: str) -> str:
    return f"one other {what}" if count == 1 else f"{count} other {what}s"


def one_does(what: str) -> str:
    """The words about several units as they are of one: "multiply random changes", "multiplies random changes"."""
    verb, _, rest = what.partition(" ")
    verb = f"{verb[:-1]}ies" if verb.endswith("y") else f"{verb}s"
    return f"{verb} {rest}".replace("their", "its").strip()


def out_of(count: int, total: int, what: str = "unit") -> str:
    return f"all {total} {what}s" if count == total > 1 else f"{count} of {counted(total, what)}"
