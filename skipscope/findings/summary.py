"""The first screen of a report: what was looked at, the headline, the findings, three numbers and one picture."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import xarray

from skipscope.findings.comparison import accuracy, last_accuracy, lost_in_last_stage, strongest
from skipscope.findings.finding import Finding, Severity, Summary, Tile
from skipscope.findings.networks import OF_UNITS, MeasuredNetwork, networks_of
from skipscope.findings.ranking import MOST, findings_of
from skipscope.wording import counted, number, share

TILES = 3
# Of findings from a profile: the quantities that show them, two of the six that its figure has.
SIZES, OF_EACH_UNIT = ("state_rms", "gradient_rms"), ("jacobian_square", "branch_over_skip")
PANELS = {
    **dict.fromkeys(("usual ends", "not compared", "state growth", "not finite"), SIZES),
    **dict.fromkeys(("gradients vanish", "gradients explode", "gradient growth"), SIZES),
    **dict.fromkeys(("a unit stands out", "gain", "usual units", "branch over skip", "idle units"), OF_EACH_UNIT),
    "samples become alike": ("effective_rank", "state_rms"),
}
# Of alarms: what the figure of a monitored training shows of them.
PANELS_OF_ALARMS = {
    "states grow": ("loss", "state_rms"),
    "gradients vanish": ("loss", "gradient_rms"),
    "a unit died": ("loss", "branch_spread"),
    "samples become alike": ("loss", "state_spread"),
    "too sharp for the rate": ("loss", "sharpness"),
    "not finite": ("loss", "state_rms"),
}
# How much a reader has to know of a claim with each verdict.
WEIGHT_OF_VERDICT = {"not reproduced": 4, "partly reproduced": 3, "inconclusive": 2, "reproduced": 1, "open": 0}


def summary_of(
    datasets: Mapping[str, xarray.Dataset],
    *,
    about: str = "",
    claims: Sequence[Mapping[str, Any]] = (),
    figures: Collection[str] = (),
) -> Summary:
    """claims: of a study, as claims.json has them; then they are what was found. figures: names of those that there
    are."""
    if claims:
        findings = claims_as_findings(claims)
        shown = _of_study(str(claims[0].get("study", "")), figures)
        return Summary(about, _verdicts(claims), tuple(findings[:MOST]), tuple(_counts(claims)), shown)
    networks = networks_of(datasets)
    findings = findings_of(datasets)
    headline = findings[0].sentence if findings else "Nothing was measured that says something about the network."
    shown, about_it = next(
        ((name, found) for found in findings for name in figures if _shows(name, found)), (_first(figures), None)
    )
    known = {"profile": PANELS, "alarms": PANELS_OF_ALARMS}.get("" if about_it is None else about_it.measure, {})
    panels = known.get("" if about_it is None else about_it.name, ())
    return Summary(about, headline, tuple(findings), tuple(_tiles(networks))[:TILES], shown, panels)


def _shows(figure: str, finding: Finding) -> bool:
    return bool(finding.figure) and (figure == finding.figure or figure.startswith(f"{finding.figure}-"))


def _of_study(study: str, figures: Collection[str]) -> str:
    """The figure with the study's own name, as `law` of D.law; where there is none, the first one that has it as a
    part, or the first of all. Others may show its controls."""
    own = study.rpartition(".")[2]
    named = [name for name in figures if own and own in name.split("-")]
    return own if own in named else _first(named or figures)


def _first(figures: Collection[str]) -> str:
    return next(iter(figures), "")


# -- networks


def _tiles(networks: Sequence[MeasuredNetwork]) -> Iterator[Tile]:
    if len(networks) > 1:
        yield from _compared(networks)
    for network in networks[:1]:
        units = {name for quantity in OF_UNITS for name in network.of_units(quantity)}
        if units:
            yield Tile("residual units", str(len(units)), "that were measured")
        unit, value, words = strongest(network)
        if math.isfinite(value):
            yield Tile(f"{words} of a unit", number(value), unit)
        growth = network.whole("gradient_growth")
        if math.isfinite(growth):
            yield Tile("gradients, first over last unit", f"{number(growth)} x", "1 would keep their size")


def _compared(networks: Sequence[MeasuredNetwork]) -> Iterator[Tile]:
    """One number of several networks in a tile: 98.1 % | 86.3 %."""
    for title, value, words in (
        ("test accuracy", last_accuracy, accuracy),
        ("directions lost in the last stage", lost_in_last_stage, share),
        (f"{strongest(networks[0])[2]} of a unit", lambda network: strongest(network)[1], number),
    ):
        found = {network.name: value(network) for network in networks}
        known = {name: each for name, each in found.items() if math.isfinite(each)}
        if len(known) > 1:
            yield Tile(title, " | ".join(words(each) for each in known.values()), " | ".join(known))


# -- claims


def claims_as_findings(claims: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Those that say something new first: what does not reproduce."""
    found = []
    for claim in claims:
        verdict = str(claim["verdict"])
        severity: Severity = "normal" if verdict in ("reproduced", "reported") else "notable"
        reason = str(claim.get("reason") or "") if verdict != "reproduced" else ""
        why = f" {'Why' if verdict == 'open' else 'Found'}: {reason}." if reason else ""
        sentence = f"{claim['id']} is {verdict}. {claim['claim']}{why}"
        weight = float(WEIGHT_OF_VERDICT.get(verdict, 0))
        found.append(Finding(str(claim["id"]), sentence, severity=severity, weight=weight))
    return sorted(found, key=lambda finding: -finding.weight)


def _verdicts(claims: Sequence[Mapping[str, Any]]) -> str:
    reproduced = [claim for claim in claims if claim["verdict"] == "reproduced"]
    decided = [claim for claim in claims if claim["verdict"] not in ("open", "reported")]
    if not decided:
        reasons = {str(claim.get("reason") or "") for claim in claims}
        why = f": {reason}" if len(reasons) == 1 and (reason := reasons.pop()) else ""
        if len(claims) == 1:
            return f"Its claim could not be decided by this run{why}."
        return f"None of {len(claims)} claims could be decided by this run{why}."
    return f"{len(reproduced)} of {counted(len(decided), 'decided claim')} reproduced."


def _counts(claims: Sequence[Mapping[str, Any]]) -> Iterator[Tile]:
    verdicts = [str(claim["verdict"]) for claim in claims]
    partly = verdicts.count("partly reproduced")
    also = f", {partly} more in part" if partly else ""
    yield Tile("reproduced", str(verdicts.count("reproduced")), f"of {len(claims)}{also}")
    yield Tile("not reproduced", str(verdicts.count("not reproduced")), "clearly on the other side")
    undecided = sum(verdicts.count(verdict) for verdict in ("inconclusive", "open"))
    yield Tile("undecided", str(undecided), "open, or the interval is on both sides")
