"""How often are usual models called unusual? Findings of models of the corpus that the ranges come from.

    python scripts/unusual_findings.py --models 130

Models of `scripts/architecture_models` in a random order, those of up to 30 million weights, with the initial weights
that their libraries give them and batch norms with the statistics of the batch; findings of their profile. Prints the
share of models with a finding that is called unusual, and how many have each of them. Ten minutes on one core.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import skipscope as ss
from scripts.architecture_models import PARTS
from skipscope.findings.ranking import findings_of

SAMPLES = 4
MOST_WEIGHTS = 30_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=130)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    entries = [(name, entry) for part in PARTS[:3] for name, entry in part.items()]
    random.Random(1).shuffle(entries)
    names: list[list[str]] = []
    for name, entry in entries:
        try:
            model, x = entry.make().eval(), entry.x(SAMPLES)
            trunk = ss.trace(model, x, calibrate=True)
            if len(trunk.units) < 2 or sum(weight.numel() for weight in model.parameters()) > MOST_WEIGHTS:
                continue
            found = findings_of({"profile": ss.profile(trunk, x)})
        except Exception as error:  # a model that cannot be measured with these inputs says nothing here
            print(f"{name}: {type(error).__name__}", file=sys.stderr)
            continue
        names.append([finding.name for finding in found if finding.severity == "unusual"])
        print(f"{name}, {len(trunk.units)} units: {', '.join(names[-1]) or 'nothing unusual'}", file=sys.stderr)
        if len(names) == options.models:
            break
    unusual = sum(bool(each) for each in names)
    print(f"{unusual} of {len(names)} models have an unusual finding ({unusual / len(names):.0%})")
    for name, count in Counter(name for each in names for name in each).most_common():
        print(f"{name}: {count} ({count / len(names):.0%})")


if __name__ == "__main__":
    main()
