"""Has skipscope become slow? Small cases of every row against the ratios that were committed.

A ratio within one run depends little on the machine; half of the committed one is allowed for what it does depend on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kit import agrees

ALLOWED = 0.5  # of the committed ratio


def verdict(rows: Sequence[Mapping[str, Any]], committed: Path) -> int:
    """The exit code; the reasons go to standard error."""
    before = {row["work"]: row for row in json.loads(committed.read_text(encoding="utf-8"))["rows"]}
    reasons = [reason for row in rows for reason in complaints(row, before.get(row["work"]))]
    for reason in reasons:
        print(f"FAILED {reason}", file=sys.stderr)
    print(f"{len(rows)} pieces of work, {len(reasons)} complaints", file=sys.stderr)
    return 1 if reasons else 0


def complaints(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    if before is None:
        return [f"{row['work']}: not among the committed results; run python -m benchmarks smoke and commit them"]
    found = [] if agrees(row) else [f"{row['work']}: answers differ by {row['difference']}, allowed {row['allowed']}"]
    for name, ratio in row["times_faster"].items():
        expected = before["times_faster"][name]
        if not ratio >= ALLOWED * expected:
            found.append(f"{row['work']}: {ratio:g} times as fast as {name}, committed {expected:g}")
    return found
