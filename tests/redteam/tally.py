"""Counts of right, flagged and wrong answers per solver: what the red team's tests assert on and print.

    right     within the stated bound (plus the reference's own rounding) of the reference
    flagged   refused, converged=False, or a bound above 1e-3 of the largest value: the user is told
    wrong     farther away, and nobody is told

An answer at an *ordinary* scale (between 1e-30 and 1e30) that is flagged also counts against `flagged_share`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["right", "flagged", "wrong"]
FLAG = 1e-3  # of the largest value: a bound above it is a flag


@dataclass
class Counts:
    right: int = 0
    flagged: int = 0
    wrong: int = 0
    ordinary: int = 0  # answers at ordinary scales
    ordinary_flagged: int = 0

    @property
    def total(self) -> int:
        return self.right + self.flagged + self.wrong

    def add(self, other: Counts) -> None:
        for name in ("right", "flagged", "wrong", "ordinary", "ordinary_flagged"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Tally:
    solvers: defaultdict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    mistakes: list[str] = field(default_factory=list)  # one line per wrong answer: which case, what was off

    def add(self, solver: str, outcome: Outcome, *, ordinary: bool = True, note: str = "") -> None:
        """One answer. note: what to print of the case when it is wrong."""
        flagged = int(outcome == "flagged")
        one = Counts(ordinary=int(ordinary), ordinary_flagged=int(ordinary) * flagged)
        setattr(one, outcome, 1)
        self.solvers[solver].add(one)
        if outcome == "wrong":
            self.mistakes.append(f"{solver}: {note}")

    def include(self, other: Tally) -> None:
        for solver, counts in other.solvers.items():
            self.solvers[solver].add(counts)
        self.mistakes += other.mistakes

    @property
    def total(self) -> Counts:
        result = Counts()
        for counts in self.solvers.values():
            result.add(counts)
        return result

    @property
    def flagged_share(self) -> float:
        """Of the answers at ordinary scales."""
        return self.total.ordinary_flagged / max(1, self.total.ordinary)

    def table(self) -> str:
        """Markdown, one row per solver."""
        lines = [
            "| solver | answers | right | flagged | wrong | flagged at 1e-30 ... 1e30 |",
            "|---|---|---|---|---|---|",
        ]
        for solver, counts in [*sorted(self.solvers.items()), ("all", self.total)]:
            lines.append(
                f"| {solver} | {counts.total:,} | {counts.right:,} | {counts.flagged:,} | {counts.wrong:,} | "
                f"{counts.ordinary_flagged:,} of {counts.ordinary:,} |"
            )
        return "\n".join(lines)

    def check(self, share: float = 0.05) -> None:
        """No wrong answer without a flag, and few flags at ordinary scales."""
        shown = "\n".join(self.mistakes[:20])
        assert not self.mistakes, f"{len(self.mistakes)} wrong answers without a flag\n{shown}\n{self.table()}"
        assert self.flagged_share <= share, f"{self.flagged_share:.1%} flagged at ordinary scales\n{self.table()}"
