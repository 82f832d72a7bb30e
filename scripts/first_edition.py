"""The verdicts of the first edition of the rules, from the results that were committed under them.

    python scripts/first_edition.py docs/results skipscope/papers/first_edition.json

For each claim one of the runs that judged it: one that decided it before one that did not, a `full` run before a
`quick` one. Nothing is judged again: the verdicts are those that the files hold.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PRESETS = ("full", "quick")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(options.results.glob("**/claims.json")):
        for claim in json.loads(file.read_text()):
            if claim.get("edition", 1) == 1:
                entry = {key: claim[key] for key in ("verdict", "preset")}
                found.setdefault(claim["id"], []).append({**entry, "results": file.parent.name})
    best = {id: min(found[id], key=rank) for id in sorted(found, key=lambda id: (id[0], int(id[1:])))}
    lines = ",\n ".join(f"{json.dumps(id)}: {json.dumps(entry)}" for id, entry in best.items())
    options.out.write_text(f"{{\n {lines}\n}}\n")


def rank(entry: dict[str, Any]) -> tuple[bool, int]:
    return entry["verdict"] == "inconclusive", PRESETS.index(entry["preset"])


if __name__ == "__main__":
    main()
