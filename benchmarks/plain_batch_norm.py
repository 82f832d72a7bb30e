"""Why `skipscope check` misses plain networks with batch norm of 24 to 44 layers.

    python -m benchmarks.plain_batch_norm measure   # into results/plain-batch-norm.json; about ten minutes of one core
    python -m benchmarks.plain_batch_norm report    # the tables of docs/check-accuracy.md

Three questions. How fast do gradients grow with depth? With batch norm and ReLU a plain network multiplies them by
sqrt(pi / (pi - 1)) = 1.211 per layer, at large width and batch (Yang, Pennington, Rao, Sohl-Dickstein, Schoenholz: A
mean field theory of batch normalization, arXiv 1902.08129). Do the missed networks train if they get more time? And
does the signal that separates them from deep published residual networks only measure width, or does width help?
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from benchmarks.check import PAGE, RATES, RESULTS, WORDS, best_epoch, fresh, outcome, read, signals
from benchmarks.machine import described
from benchmarks.page import put_between
from skipscope.runs import write_whole

FILE = RESULTS / "plain-batch-norm.json"
BEGIN = "<!-- from here on: written by benchmarks/plain_batch_norm.py report -->"
END = "<!-- end of what this one writes -->"
THEORY = math.log10(math.sqrt(math.pi / (math.pi - 1)))
MISSED = (
    *(f"plainnet{depth}-digits-connected-n2" for depth in (24, 32)),
    *(f"plainnet{depth}-digits-{form}" for depth, form in ((40, "connected"), (32, "n4"), (44, "n4"))),
)
LONGER = 120  # epochs, eight times as many
WIDTHS = ("-n2", "", "-w4", "-w8")  # 32, 64, 256, 512
DEPTHS = (20, 32, 40)
SENSITIVITY, GRADIENT_RANK = "sensitivity", "gradient_rank"


def measure() -> None:
    found: dict[str, Any] = {"machine": described(), "longer": {}, "widths": {}}
    for name in MISSED:
        best = {str(rate): round(best_epoch(fresh(name), rate, LONGER), 4) for rate in RATES[:3]}
        found["longer"][name] = best
        print(name, best, flush=True)
    for depth in DEPTHS:
        for width in WIDTHS:
            name = f"plainnet{depth}-digits-connected{width}"
            found["widths"][name] = {**outcome(name), "signals": signals(name)}
            print(name, found["widths"][name], flush=True)
    write_whole(FILE, f"{json.dumps(found, indent=1)}\n".encode())


def report() -> None:
    stored, found = read(), json.loads(FILE.read_text(encoding="utf-8"))
    lines = [
        "| plain, batch norm | layers | gradients grow, log10 | per layer | theory, per layer |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in ("plainnet16-digits-connected-n2", "plainnet32-digits-connected-n2", "plainnet64-digits-connected-n2"):
        growth, layers = stored["networks"][name]["signals"]["gradient_growth"], int(name[8:10])
        lines.append(f"| `{name}` | {layers} | {growth:.2f} | {growth / layers:.3f} | {THEORY:.3f} |")
    lines += ["", f"| missed | best accuracy, 15 epochs | {LONGER} epochs, by rate |", "|---|---:|---|"]
    both = stored["networks"] | stored["later"]
    for name, best in found["longer"].items():
        rates = ", ".join(f"{rate}: {value:.2f}" for rate, value in best.items())
        lines.append(f"| `{name}` | {max(both[name]['accuracy'].values()):.2f} | {rates} |")
    lines += [
        "",
        "| plain, batch norm | width | best accuracy | trains | gradients grow, log10 | sensitivity, log10 "
        "| gradient rank |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    widths = {"-n2": 32, "": 64, "-w4": 256, "-w8": 512}
    for name, network in found["widths"].items():
        of, width = network["signals"], widths[name.partition("connected")[2]]
        lines.append(
            f"| `{name}` | {width} | {max(network['accuracy'].values()):.2f} | {WORDS[network['trains']]} | "
            f"{of['gradient_growth']:.2f} | {of[SENSITIVITY]:.2f} | {of[GRADIENT_RANK]:.2f} |"
        )
    text = "\n".join(lines)
    put_between(PAGE, BEGIN, END, text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "report"))
    {"measure": measure, "report": report}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
