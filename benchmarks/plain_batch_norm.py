"""Why `skipscope check` misses plain networks with batch norm of 24 to 44 layers.

    python -m benchmarks.plain_batch_norm measure   # into results/plain-batch-norm.json; about ten minutes of one core
    python -m benchmarks.plain_batch_norm report    # the tables of docs/check.md, and how the proposed rule does

Three questions. How fast do gradients grow with depth? With batch norm and ReLU a plain network multiplies them by
sqrt(pi / (pi - 1)) = 1.211 per layer, at large width and batch (Yang, Pennington, Rao, Sohl-Dickstein, Schoenholz: A
mean field theory of batch normalization, arXiv 1902.08129). Do the missed networks train if they get more time? And
does the signal that separates them from deep published residual networks only measure width, or does width help?
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from typing import Any

from benchmarks.check import PAGE, RATES, RESULTS, WORDS, best_epoch, fresh, halves, outcome, read, signals
from benchmarks.machine import described
from benchmarks.page import put_between
from skipscope.check.rules import RULES
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


# -- the proposed rule


def proposed(networks: list[dict[str, Any]]) -> tuple[float, float]:
    """Thresholds of the two signals, by the way of `check.py fit`: no network that trains breaks both, halfway to the
    next that does not. First the rank, between the missed networks and the published ones that are as sensitive; then
    the sensitivity, among networks below that rank."""
    missed = [n["signals"] for n in networks if not n["trains"] and not _broken(n["signals"])]
    plain = [s for s in missed if s[SENSITIVITY] > 1]
    least = min(s[SENSITIVITY] for s in plain)
    wide = min(n["signals"][GRADIENT_RANK] for n in networks if n["trains"] and n["signals"][SENSITIVITY] >= least)
    rank = (max(s[GRADIENT_RANK] for s in plain) + wide) / 2
    last = max(n["signals"][SENSITIVITY] for n in networks if n["trains"] and n["signals"][GRADIENT_RANK] < rank)
    return (last + min(s[SENSITIVITY] for s in plain if s[SENSITIVITY] > last)) / 2, rank


def _broken(of: dict[str, float]) -> bool:
    return any(rule.broken(of) for rule in RULES)


def report() -> None:
    stored, found = read(), json.loads(FILE.read_text(encoding="utf-8"))
    first, second = halves(stored["networks"])
    published = [{"trains": True, "signals": each} for each in stored["published"].values()]
    calibration = [stored["networks"][name] for name in first]
    sensitivity, rank = proposed(calibration + published)

    def extra(of: dict[str, float]) -> bool:
        return of[SENSITIVITY] > sensitivity and of[GRADIENT_RANK] < rank

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
    lines += [
        "",
        f"The rule that would find them, from the first half and the published networks: fails where `sensitivity` is "
        f"above 10^{sensitivity:.2f} and `gradient_rank` below {rank:.2f}, or where a present rule is broken.",
        "",
        "| networks | right now | right with the rule | found by it | false alarms of it |",
        "|---|---:|---:|---:|---:|",
    ]
    groups = {
        "first half, which it is from": {name: stored["networks"][name] for name in first},
        "second half, looked at before": {name: stored["networks"][name] for name in second},
        "later networks, looked at before": stored["later"],
        "wide plain ones, above": found["widths"],
    }
    for title, networks in groups.items():
        counts: Counter[str] = Counter()
        for network in networks.values():
            of, fails = network["signals"], not network["trains"]
            counts["now"] += _broken(of) == fails
            counts["then"] += (_broken(of) or extra(of)) == fails
            counts["found"] += extra(of) and not _broken(of) and fails
            counts["false"] += extra(of) and not _broken(of) and not fails
        total = len(networks)
        lines.append(
            f"| {title} | {counts['now']} of {total} | {counts['then']} of {total} | {counts['found']} "
            f"| {counts['false']} |"
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
