"""skipscope against its alternatives, side by side.

    python -m benchmarks cpu                    the set for a CPU: under 15 minutes on 2 cores (make bench)
    python -m benchmarks gpu --weights docs/results/networks/resnet56-cifar-projection-seed1000.safetensors \\
        --images cifar10-test-images.pt         the set for a GPU: under 10 minutes on one H200 (make bench-gpu)
    python -m benchmarks guard                  small cases against the committed ratios (make bench-smoke)
    python -m benchmarks growth                 time and memory against depth, samples, k, ...
    python -m benchmarks page                   docs/benchmarks.md from the committed results

Results go to benchmarks/results. The other libraries come with `pip install skipscope[bench]`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from benchmarks import guard, page
from benchmarks.growth import grown
from benchmarks.kit import Size, agrees, measured, peak_bytes, peaks_in_processes
from benchmarks.machine import described, load
from benchmarks.rows import ROWS, works

SAME = (
    "device",
    "processor",
    "cores",
    "threads",
    "torch",
    "python",
    "skipscope",
)  # of a machine whose rows may stand in one table
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["cpu", "gpu", "smoke", "guard", "growth", "page", "peak"])
    parser.add_argument("what", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=ROWS, help="some of the rows; the others stay as they are")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights", type=Path, help="of the ResNet-56 of the GPU set")
    parser.add_argument("--images", type=Path, help="of the GPU set")
    parser.add_argument("--out", type=Path, help="where to write; by default benchmarks/results/NAME.json")
    parser.add_argument("--size", default="cpu", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command == "peak":
        row, number, way = options.what
        size = Size(options.size, weights=options.weights, images=options.images)
        print(peak_bytes(works(row, size)[int(number)].ways[way]))
        return
    if options.command == "page":
        page.write()
        return
    if options.command == "growth":
        _save({"machine": described(), "growth": grown()}, options.out or RESULTS / "growth-cpu.json")
        return
    if options.command == "gpu" and not torch.cuda.is_available():
        raise SystemExit("the GPU set needs a GPU, and torch sees none; `python -m benchmarks cpu` needs none")
    name = "smoke" if options.command == "guard" else options.command
    size = Size(name, "cuda" if name == "gpu" else "cpu", options.rounds, options.weights, options.images)
    if name == "smoke":
        torch.set_num_threads(1)  # times of the processor, which then depend little on what else the machine does
    chosen = options.only or list(ROWS)
    if options.command == "guard":
        sys.exit(guard.verdict(list(run(size, chosen)), RESULTS / "smoke.json"))
    rows: list[dict[str, object]] = []
    path = options.out or RESULTS / f"{name}.json"
    machine = described(size.device)
    there = _rows_there(path, machine) if options.only else []
    for row in run(size, chosen):
        rows.append(row)  # written one by one: a machine that is lent may be taken back
        _save({"machine": machine, "set": name, "rows": _together(there, rows)}, path)
    _save({"machine": machine, "set": name, "rows": _together(there, rows, ended=True)}, path)
    wrong = [row["work"] for row in rows if not agrees(row)]
    if wrong:
        raise SystemExit(f"the answers differ: {'; '.join(wrong)}")


def run(size: Size, names: list[str]) -> Iterator[dict[str, object]]:
    for name in names:
        for number, work in enumerate(works(name, size)):
            apart = work.memory and size.name == "cpu" and sys.platform == "linux"
            peaks = peaks_in_processes(name, number, list(work.ways), size) if apart else None
            yield {"row": name, "load": load(), **measured(work, size, peaks)}


def _rows_there(path: Path, machine: Mapping[str, object]) -> list[dict[str, object]]:
    """What stays as it is where some rows are measured anew; results of different machines are not mixed."""
    if not path.exists():
        return []
    there = json.loads(path.read_text(encoding="utf-8"))
    before = there.get("machine", {})
    other = [key for key in SAME if before.get(key) != machine.get(key)]
    if other:
        about = ", ".join(f"{key}: {before.get(key)}, here {machine.get(key)}" for key in other)
        raise SystemExit(
            f"{path} was measured on another machine ({about}); write to another file with --out, or measure all rows"
        )
    return [row for row in there["rows"] if row["row"] in ROWS]


def _together(
    there: list[dict[str, object]], new: list[dict[str, object]], *, ended: bool = False
) -> list[dict[str, object]]:
    """What is measured anew in the place of what was there. Of a row that is measured to its end, nothing old stays; of
    the last one that is known only where the run has ended."""
    works = {row["work"] for row in new}
    complete = {row["row"] for row in new} - (set() if ended or not new else {new[-1]["row"]})
    others = [row for row in there if row["row"] not in complete and row["work"] not in works]
    return sorted([*others, *new], key=lambda row: list(ROWS).index(str(row["row"])))


def _save(results: dict[str, object], path: Path) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
