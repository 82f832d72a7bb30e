"""A table of the numbers of every network, from the verdicts of a run of D.population.

    python scripts/population_numbers.py docs/results/D/population

Reads claims.json in the folder and writes numbers.md beside it: for each claim, subject and quantity the value of every
network and, where a part is judged by it, the mean with its interval and the part's verdict.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skipscope.runs.decisions import Decision, Outcome, SubjectDecision

HEAD = """# Paper D on the population, part by part

Made by `scripts/population_numbers.py` from [claims.json](claims.json). Networks in the order of their seeds, 1000 to
1004; means with 95 % intervals over networks, on logits for shares, on logarithms for ratios, on Fisher's z for
correlations. Both depths: each network left out in turn gives the interval. Without a verdict: reported beside.

| claim | subject | quantity | networks | mean (interval) | claimed | part | verdict |
|---|---|---|---|---|---|---|---|"""
WORDS = {"<=": "at most", ">=": "at least", "<": "below", ">": "above", "within": "within"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    decisions = [Decision.from_dict(entry) for entry in json.loads((folder / "claims.json").read_text())]
    rows = [row for decision in decisions for subject in decision.subjects for row in of_subject(decision.id, subject)]
    (folder / "numbers.md").write_text("\n".join([HEAD, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n")


def of_subject(claim: str, subject: SubjectDecision) -> Iterator[list[str]]:
    judged = [(part, outcome) for part in subject.parts for outcome in part.outcomes if outcome.n]
    for quantity, values in subject.measured.items():
        start = [claim, subject.subject, quantity, numbers(values)]
        own = [(part, outcome) for part, outcome in judged if outcome.quantity == quantity]
        for part, outcome in own:
            beside = "" if subject.decides else " (beside)"
            verdict = "control" if outcome.control else f"{part.verdict}{beside}"
            yield [*start, mean(outcome), claimed(outcome), part.name, verdict]
        if not own:
            yield [*start, "", "", "", ""]


def numbers(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in (values if isinstance(values, list) else [values]))


def mean(outcome: Outcome) -> str:
    interval = f" ({outcome.interval[0]:.3g} to {outcome.interval[1]:.3g})" if outcome.interval else ""
    return f"{outcome.mean:.3g}{interval}"


def claimed(outcome: Outcome) -> str:
    ends = outcome.threshold if isinstance(outcome.threshold, tuple) else (outcome.threshold,)
    return f"{WORDS[outcome.relation]} {' to '.join(f'{end:.3g}' for end in ends)}"


if __name__ == "__main__":
    main()
