"""How often `skipscope check` is right about 210 networks that it has never seen.

    python -m benchmarks.unseen list                     # writes down which networks judge, before any is trained
    python -m benchmarks.unseen train calibration        # those that thresholds may come from; can be stopped, resumed
    python -m benchmarks.unseen train earlier            # so may those of benchmarks/check.py, given more time
    python -m benchmarks.unseen fit                      # the thresholds that the calibration networks give
    python -m benchmarks.unseen train judging            # once rules and thresholds are fixed
    python -m benchmarks.unseen train plain              # plain networks with batch norm of 24 to 44 layers, likewise
    python -m benchmarks.unseen list third               # other networks, which judge the short training
    python -m benchmarks.unseen train third              # once that is fixed
    python -m benchmarks.unseen ceiling                  # what a forest of trees makes of the same signals
    python -m benchmarks.unseen report [third]           # the figure of a list, into docs/check-accuracy.md

The list `second` judged the first form of the short training, which ended earlier. The numbers of the present one come
from its course on the calibration, the judging and the second networks, whose outcomes were known by then
(`python -m benchmarks.unseen.courses`). Each network is drawn by `networks.py`; `training.py` says what "trains" means.
Two processes of one thread each; about 15 seconds of one core a network.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.check import PAGE, RESULTS
from benchmarks.machine import described
from benchmarks.page import put_between
from benchmarks.unseen import judging, training
from benchmarks.unseen.networks import Earlier, Network, drawn, earlier, plain_with_batch_norm
from skipscope.runs import write_whole

COUNTS = {"calibration": 134, "judging": 210, "plain": 24, "second": 204, "third": 210}
LISTS = (*COUNTS, "earlier")
WRITTEN = {  # lists that were written down together
    "judging": ("judging", "plain"),
    "second": ("second",),
    "third": ("third",),
}
TRAINED_SHORTLY = ("second", "third")  # as well
REPORTED = ("judging", "third")
PROCESSES = 2
BEGIN = "<!-- from here on: written by python -m benchmarks.unseen report -->"
END = "<!-- end of what it writes about unseen networks -->"
BEGIN_THIRD = "<!-- from here on: written by python -m benchmarks.unseen report third -->"
END_THIRD = "<!-- end of what it writes about the short training -->"


def networks(of: str) -> Sequence[Network | Earlier]:
    if of == "earlier":
        return earlier()
    return (plain_with_batch_norm if of == "plain" else drawn)(of, COUNTS[of])


def stored(of: str) -> dict[str, Any]:
    path = RESULTS / f"unseen-{of}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"networks": {}}


def list_of(of: str) -> Path:
    return RESULTS / ("unseen-list.json" if of == "judging" else f"unseen-list-{of}.json")


def write_list(of: str) -> None:
    """Of the networks that judge, with what "trains" means."""
    listed = {each: [{**network.record, "seed": network.seed} for network in networks(each)] for each in WRITTEN[of]}
    text = json.dumps({"trains": training.__doc__, **listed}, indent=1)
    write_whole(list_of(of), f"{text}\n".encode())


def train(of: str) -> None:
    one = training.trained_twice if of in TRAINED_SHORTLY else training.trained
    found = stored(of)["networks"]
    left = [network for network in networks(of) if network.name not in found]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for name, record in pool.imap_unordered(one, left):
            found[name] = record
            text = json.dumps({"machine": described(), "networks": dict(sorted(found.items()))}, indent=1)
            write_whole(RESULTS / f"unseen-{of}.json", f"{text}\n".encode())
            print(name, record, file=sys.stderr, flush=True)


def report(of: str) -> None:
    if of == "third":
        text = judging.report_of_short_training(stored("third")["networks"])
        put_between(PAGE, BEGIN_THIRD, END_THIRD, text)
    else:
        text = judging.report(stored("judging")["networks"], stored("plain")["networks"])
        put_between(PAGE, BEGIN, END, text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("list", "train", "fit", "ceiling", "report"))
    parser.add_argument("of", nargs="?", choices=LISTS, default="judging", help="which networks")
    options = parser.parse_args()
    lists = {"list": tuple(WRITTEN), "report": REPORTED}.get(options.what, LISTS)
    if options.of not in lists:
        parser.error(f"expected one of {', '.join(lists)}, lists that judge, got {options.of}")
    if options.what == "train":
        train(options.of)
    elif options.what == "fit":
        print(judging.fit(stored("calibration")["networks"].values(), stored("earlier")["networks"].values()))
    elif options.what == "ceiling":
        drawn_ones = [*stored("calibration")["networks"].values(), *stored("judging")["networks"].values()]
        print(f"{100 * judging.ceiling(drawn_ones):.1f} %")
    else:
        {"list": write_list, "report": report}[options.what](options.of)


if __name__ == "__main__":
    main()
