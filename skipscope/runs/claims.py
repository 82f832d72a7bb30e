"""A claim is declared with its rule before a run, and decided from the run's data by that rule alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]


@dataclass(frozen=True)
class Decision:
    """A claim after a run: one entry of claims.json."""

    id: str
    paper: str
    claim: str
    statistic: str
    expected: str
    measured: dict[str, Any]
    verdict: Verdict
    preset: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Claim:
    id: str  # D3
    paper: str
    claim: str
    statistic: str
    expected: str  # the rule in words
    rule: Callable[[Mapping[str, Any]], bool | None]  # of what was measured; None where that cannot decide

    def decide(self, measured: Mapping[str, Any], preset: str) -> Decision:
        """An inconclusive measurement should hold its `reason`."""
        outcome = self.rule(measured)
        verdict: Verdict = "inconclusive" if outcome is None else "reproduced" if outcome else "not reproduced"
        return Decision(self.id, self.paper, self.claim, self.statistic, self.expected, dict(measured), verdict, preset)
