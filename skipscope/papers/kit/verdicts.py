"""One table of all verdicts: for each claim the best evidence among several runs, part by part.

Parts of a claim may be about networks that no single run trains, so that each part has its own best evidence, and the
claim's verdict is that of these parts. Evidence under today's rules comes before that under older ones, a part that was
judged before one that is open, more networks before fewer, and of as many the larger preset, which has more images and
longer training: never a verdict before another, which would favour the runs that find something. Without runs it is the
evidence that ships with the package (`papers/verdicts.json`, made by `scripts/verdicts.py` from the committed results).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from skipscope.papers.kit.catalogue import claims, study_of
from skipscope.papers.kit.claims import Claim, verdict_of
from skipscope.papers.kit.names import PRESETS
from skipscope.runs import load_run
from skipscope.runs.decisions import Decision, PartDecision

SHIPPED = "verdicts.json"
Found = tuple[str, Decision]  # the run that it comes from, and what it decided


@dataclass(frozen=True)
class Judged:
    """A claim with its best evidence."""

    claim: Claim
    decision: Decision  # open where there is no evidence
    sources: tuple[str, ...] = ()  # the runs that it comes from, one for each part; empty where there is none
    presets: tuple[str, ...] = ()  # of these runs

    @property
    def source(self) -> str:
        """All runs that it comes from, in words."""
        return ", ".join(dict.fromkeys(filter(None, self.sources)))

    @property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(part.subject for part in self.decision.parts if part.subject))

    @property
    def networks(self) -> int:
        return max((part.networks for part in self.decision.parts), default=0)

    @property
    def commands(self) -> dict[str, str]:
        """By run: what makes the evidence. Without evidence what would make it, under an empty name."""
        study = study_of(self.claim).id
        made = {source: preset for source, preset in zip(self.sources, self.presets, strict=True) if source}
        return {
            source: f"skipscope study run {study} --preset {preset}"
            for source, preset in (made or {"": "full"}).items()
        }

    def to_dict(self) -> dict[str, Any]:
        content = self.decision.to_dict()
        for part, source in zip(content["parts"], self.sources or [""] * len(content["parts"]), strict=False):
            part["source"] = source
        return {**content, "source": self.source, "commands": self.commands}


def judged(runs: Sequence[Path]) -> list[Judged]:
    """All claims of the installed papers, from these runs, or from what ships with the package."""
    return best_of(_of_runs(runs), "none of these runs judged it") if runs else shipped()


def best_of(found: Iterable[Found], reason: str) -> list[Judged]:
    """All claims of the installed papers. reason: why a claim that nothing was found about is open."""
    by_claim: dict[str, list[Found]] = {}
    for source, decision in found:
        by_claim.setdefault(decision.id, []).append((source, decision))
    return [
        _together(claim, by_claim[claim.id]) if claim.id in by_claim else Judged(claim, _unknown(claim, reason))
        for claim in claims()
    ]


def _unknown(claim: Claim, reason: str) -> Decision:
    return study_of(claim).decide(claim, (), "full", reason=reason)


def _together(claim: Claim, found: Sequence[Found]) -> Judged:
    newest = max(decision.edition for _, decision in found)
    recent = [(source, decision) for source, decision in found if decision.edition == newest]
    names = [part.name for part in claim.parts]
    fitting = [(source, own) for source, own in recent if [part.name for part in own.parts] == names]
    if not names or not fitting:  # nothing to judge, or judged when the claim had other parts
        source, base = recent[-1]
        places = max(1, len(base.parts))
        return Judged(claim, base, (source,) * places, (base.preset,) * places)
    best = [
        max(((source, own, own.parts[place]) for source, own in fitting), key=lambda each: _worth(each[1], each[2]))
        for place in range(len(names))
    ]
    used = [(source, own) for source, own in fitting if any(own is chosen for _, chosen, _ in best)]
    if len(used) == 1:
        ((source, base),) = used
        kept = [source if part.networks or part.verdict != "open" else "" for part in base.parts]
        return Judged(claim, base, tuple(kept), (base.preset,) * len(kept))
    parts = tuple(part for _, _, part in best)
    verdict, why = verdict_of(parts)
    subjects = {(source, own.subject): own for source, decision in used for own in decision.subjects}
    decision = replace(
        used[0][1],
        verdict=verdict,
        reason=why,
        parts=parts,
        outcomes=tuple(outcome for part in parts for outcome in part.outcomes),
        subjects=tuple(subjects.values()),
        measured={f"{name} [{source}]": value for source, own in used for name, value in own.measured.items()},
        cost=_unknown(claim, why).cost if verdict == "open" else "",
    )
    kept = [source if part.networks or part.verdict != "open" else "" for source, _, part in best]
    return Judged(claim, decision, tuple(kept), tuple(own.preset for _, own, _ in best))


def _worth(decision: Decision, part: PartDecision) -> tuple[bool, int, int]:
    sizes = {preset: place for place, preset in enumerate(PRESETS)}
    return part.verdict != "open", part.networks, sizes.get(decision.preset, -1)


def _of_runs(runs: Sequence[Path]) -> Iterable[Found]:
    for path in runs:
        saved = load_run(path)
        saved.require("run.json", "claims.json")
        yield from ((str(path), decision) for decision in saved.claims)


def shipped() -> list[Judged]:
    """What `to_ship` gave."""
    content = {
        entry["decision"]["id"]: entry for entry in json.loads(files("skipscope.papers").joinpath(SHIPPED).read_text())
    }
    rows = []
    for claim in claims():
        if claim.id in content:
            entry = content[claim.id]
            own = Decision.from_dict(entry["decision"])
            rows.append(Judged(claim, own, tuple(entry["sources"]), tuple(entry["presets"])))
        else:
            rows.append(Judged(claim, _unknown(claim, "it was not run under these rules")))
    return rows


def to_ship(rows: Iterable[Judged]) -> list[dict[str, Any]]:
    """Claims with evidence, for the file that ships with the package."""
    return [
        {"decision": row.decision.to_dict(), "sources": list(row.sources), "presets": list(row.presets)}
        for row in rows
        if row.source
    ]


def numbers(part: PartDecision) -> str:
    """Of a part, in short: its value with the interval."""
    leading = part.leading
    if leading is None or leading.mean is None:
        return ""
    interval = f" ({leading.interval[0]:.3g} to {leading.interval[1]:.3g})" if leading.interval else ""
    return f"{leading.mean:.3g}{interval}"
