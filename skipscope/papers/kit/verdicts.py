"""One table of all verdicts: for each claim the best evidence among several runs.

A run that decided a claim comes before one that did not, one under today's rules before one under older ones, and one
with more networks before one with fewer. Without runs it is the evidence that ships with the package
(`papers/verdicts.json`, made by `scripts/verdicts.py` from the committed results).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from skipscope.papers.kit.catalogue import claims, study_of
from skipscope.papers.kit.claims import Claim
from skipscope.runs import load_run
from skipscope.runs.decisions import Decision, PartDecision

DECIDED = ("reproduced", "partly reproduced", "not reproduced")
SHIPPED = "verdicts.json"


@dataclass(frozen=True)
class Judged:
    """A claim with its best evidence."""

    claim: Claim
    decision: Decision  # open where there is no evidence
    source: str  # the run that it comes from; empty where there is none

    @property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(part.subject for part in self.decision.parts if part.subject))

    @property
    def networks(self) -> int:
        return max((part.networks for part in self.decision.parts), default=0)

    @property
    def command(self) -> str:
        """That makes the evidence, or would make it."""
        preset = self.decision.preset if self.source else "full"
        return f"skipscope study run {study_of(self.claim).id} --preset {preset}"

    def to_dict(self) -> dict[str, Any]:
        return {**self.decision.to_dict(), "source": self.source, "command": self.command}


def judged(runs: Sequence[Path]) -> list[Judged]:
    """All claims of the installed papers, from these runs, or from what ships with the package."""
    found = list(_of_runs(runs)) if runs else list(shipped())
    rows = []
    for claim in claims():
        own = [(source, decision) for source, decision in found if decision.id == claim.id]
        if own:
            source, decision = max(own, key=lambda each: _worth(each[1]))
            rows.append(Judged(claim, decision, source))
        else:
            study = study_of(claim)
            reason = "none of these runs judged it" if runs else "it was not run under these rules"
            rows.append(Judged(claim, study.decide(claim, (), "full", reason=reason), ""))
    return rows


def _of_runs(runs: Sequence[Path]) -> Iterable[tuple[str, Decision]]:
    for path in runs:
        saved = load_run(path)
        saved.require("run.json", "claims.json")
        yield from ((str(path), decision) for decision in saved.claims)


def shipped() -> Iterable[tuple[str, Decision]]:
    content = json.loads(files("skipscope.papers").joinpath(SHIPPED).read_text())
    for entry in content:
        yield entry.pop("source"), Decision.from_dict(entry)


def _worth(decision: Decision) -> tuple[int, int, int]:
    rank = 2 if decision.verdict in DECIDED else 1 if decision.verdict != "open" else 0
    return decision.edition, rank, max((part.networks for part in decision.parts), default=0)


def numbers(part: PartDecision) -> str:
    """Of a part, in short: its value with the interval."""
    leading = part.leading
    if leading is None or leading.mean is None:
        return ""
    interval = f" ({leading.interval[0]:.3g} to {leading.interval[1]:.3g})" if leading.interval else ""
    return f"{leading.mean:.3g}{interval}"
