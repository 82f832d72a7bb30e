"""Joins what D.population measured on each network into one compressed dataset per depth and kind.

    python scripts/population_datasets.py docs/results/D/population RUN...

RUN: folders of runs of `skipscope study run D.population --set files=...`, each of some of the networks of one recipe.
The networks become the dimension `network`, named by their seeds; what no claim needs is left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from skipscope.papers.d.population.stored import read_folders, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for by_kind in read_folders(options.runs, print).values():
        for kind, dataset in by_kind.items():
            depth = str(dataset.attrs["architecture"]).partition("-")[0]
            write(dataset, options.out / f"{depth}-{kind}.nc")


if __name__ == "__main__":
    main()
